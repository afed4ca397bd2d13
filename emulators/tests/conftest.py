"""Settings of Hypothesis and of every Azure SDK client in these tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from azure.core.pipeline.transport import AioHttpTransport

# The tests of the package run without Hypothesis.
with suppress(ImportError):
    from hypothesis import settings

    # On a busy machine an example takes as long as it takes. Each run of a test has the same ones, by its source.
    settings.register_profile("tests", settings(deadline=None, derandomize=True))
    settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """Fail tests that leave something behind, or hang, unless those of the package run without the project."""
    with suppress(ImportError):
        from tests.support import leaks, watchdog

        for plugin in (leaks, watchdog):
            if not config.pluginmanager.is_registered(plugin):
                config.pluginmanager.register(plugin)


@pytest.fixture(autouse=True, scope="session")
def no_proxies() -> Iterator[None]:
    """Have clients look for no proxy, as all servers are on this machine.

    The look-up, for each request in two other threads, is a fifth of the cost of a request.
    """
    create = AioHttpTransport.__init__

    def without_proxies(self: Any, /, **options: Any) -> None:
        create(self, **{"use_env_settings": False, **options})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AioHttpTransport, "__init__", without_proxies)
        yield
