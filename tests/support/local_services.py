"""Clients for services on this machine: without proxies and public certificates, opened and closed at once.

The SDK of Cosmos DB looks for a proxy before each request, in two other threads: a fifth of the cost of a request.
To read the certificates of public authorities takes 25 ms of processor time for each client. A sender or receiver
of Service Bus sleeps 50 ms between the ten steps of its opening, each of which waits for the service anyway, and
its closing waits for its keep-alive, which sleeps a second at a time (azure-servicebus 7.15.0, `_open` and
`AMQPClientAsync.close_async`). No test needs any of it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus._pyamqp.aio._client_async import AMQPClientAsync
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async, _session_browser_async

_END = "-----END CERTIFICATE-----\n"


class _WithoutSleep:
    """`asyncio` for a module whose only sleep is a pause before it waits for a service."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, _: float) -> None:
        await asyncio.sleep(0)


@pytest.fixture(autouse=True, scope="session")
def local_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the clients of this process cheap; child processes are as they always are."""
    create = AioHttpTransport.__init__
    close: Any = AMQPClientAsync.close_async
    one_authority = tmp_path_factory.mktemp("authorities") / "one.pem"
    one_authority.write_text("".join(Path(certifi.where()).read_text(encoding="utf-8").partition(_END)[:2]))

    def without_proxies(self: Any, /, **options: Any) -> None:
        create(self, **{"use_env_settings": False, **options})

    async def without_a_second(self: Any) -> None:
        keeping_alive, self._keep_alive_thread = self._keep_alive_thread, None
        if keeping_alive is not None:
            keeping_alive.cancel()
            await asyncio.wait([keeping_alive])
        await close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AioHttpTransport, "__init__", without_proxies)
        for module in (_servicebus_receiver_async, _servicebus_sender_async, _session_browser_async):
            patch.setattr(module, "asyncio", _WithoutSleep())
        patch.setattr(AMQPClientAsync, "close_async", without_a_second)
        patch.setattr(certifi, "where", lambda: str(one_authority))
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda self, purpose=ssl.Purpose.SERVER_AUTH: None)
        yield
