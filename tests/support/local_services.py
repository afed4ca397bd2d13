"""Clients for services on this machine, which read neither the proxies of the environment nor public certificates.

The SDK of Cosmos DB looks for a proxy before each request, in two other threads: a fifth of the cost of a request.
To read the certificates of public authorities takes 25 ms of processor time for each client. No test needs either.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from azure.core.pipeline.transport import AioHttpTransport

_END = "-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True, scope="session")
def local_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the clients of this process cheap; child processes are as they always are."""
    create = AioHttpTransport.__init__
    one_authority = tmp_path_factory.mktemp("authorities") / "one.pem"
    one_authority.write_text("".join(Path(certifi.where()).read_text(encoding="utf-8").partition(_END)[:2]))

    def without_proxies(self: Any, /, **options: Any) -> None:
        create(self, **{"use_env_settings": False, **options})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AioHttpTransport, "__init__", without_proxies)
        patch.setattr(certifi, "where", lambda: str(one_authority))
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda self, purpose=ssl.Purpose.SERVER_AUTH: None)
        yield
