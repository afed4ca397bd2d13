"""What holds for every client of Azure's SDKs in these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.pipeline.transport import AioHttpTransport


@pytest.fixture(autouse=True, scope="session")
def no_proxies() -> Iterator[None]:
    """Clients talk to this machine, so they look for no proxy.

    They would do so for each request, in two other threads, and that is a fifth of what a request costs.
    """
    create = AioHttpTransport.__init__

    def without_proxies(self: Any, /, **options: Any) -> None:
        create(self, **{"use_env_settings": False, **options})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AioHttpTransport, "__init__", without_proxies)
        yield
