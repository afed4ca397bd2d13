"""The transport of the trigger's client, on its own: what it repeats, and what it gives back at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from azure.core.exceptions import AzureError
from azure.core.rest import HttpRequest

from outbox_emulators.functions.transport import TriggerTransport

Answer = Callable[[], Awaitable[web.Response]]


class Service:
    """Counts requests, and answers them as `answer` does."""

    def __init__(self) -> None:
        self.requests = 0
        self.answer: Answer = self._nothing

    async def handle(self, _: web.BaseRequest) -> web.Response:
        self.requests += 1
        return await self.answer()

    async def _nothing(self) -> web.Response:
        return web.Response()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def address(service: Service) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/dbs", service.handle)
    async with TestServer(application) as server:
        yield str(server.make_url("/dbs"))


@pytest.fixture
async def transport() -> AsyncIterator[TriggerTransport]:
    async with TriggerTransport(asyncio.Event()) as opened:
        yield opened


async def test_a_request_without_an_answer_is_not_repeated(
    service: Service, address: str, transport: TriggerTransport
) -> None:
    async def hang() -> web.Response:
        await asyncio.sleep(0.5)
        return web.Response()

    service.answer = hang
    with pytest.raises(AzureError):
        await transport.send(HttpRequest("GET", address), read_timeout=0.05)

    assert service.requests == 1


@pytest.mark.parametrize(("retry_after_ms", "requests"), [(1, 10), (31_000, 1)])
async def test_a_throttled_request_is_repeated_nine_times_and_for_thirty_seconds_at_most(
    service: Service, address: str, transport: TriggerTransport, retry_after_ms: int, requests: int
) -> None:
    async def throttle() -> web.Response:
        return web.Response(status=429, headers={"x-ms-retry-after-ms": str(retry_after_ms)})

    service.answer = throttle
    async with asyncio.timeout(10):
        response = await transport.send(HttpRequest("GET", address))

    assert (response.status_code, service.requests) == (429, requests)
