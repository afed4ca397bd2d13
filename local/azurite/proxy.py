"""A proxy in front of an Azurite, on which requests can be refused, cut off or left without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientSession, TCPConnector, web

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.http_requests import refuse_unreadable

# Of one hop, and set anew for the next one.
_HOP = frozenset({"transfer-encoding", "content-length", "connection", "keep-alive"})
_MAX_BYTES = 1 << 26
_LOOK_EVERY_S = 0.02

CODES: Mapping[int, str] = {
    403: "AuthorizationPermissionMismatch",
    404: "ContainerNotFound",
    409: "ContainerBeingDeleted",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServerBusy",
}
"""Statuses with which requests can be refused, and Blob Storage's error code for each.

https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""


class Passing:
    """A request on its way to the account. Whoever gets it decides what becomes of it."""

    def __init__(self, request: web.Request, upstream: str, session: ClientSession, ended: asyncio.Event) -> None:
        self.request = request
        self._upstream = upstream
        self._session = session
        self._ended = ended

    async def answer(self) -> web.Response:
        """Return the account's answer."""
        request = self.request
        async with self._session.request(
            request.method,
            f"{self._upstream}{request.raw_path}",
            data=await request.read() or None,
            headers=request.headers,
        ) as answer:
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            return web.Response(status=answer.status, headers=passed, body=await answer.read())

    async def refuse(self, status: int) -> web.Response:
        """Return an answer of one of CODES; the account does not get the request."""
        await self.request.read()
        return web.Response(status=status, headers={"x-ms-error-code": CODES[status]})

    def reset(self) -> web.Response:
        """Close the connection without an answer."""
        if self.request.transport is not None:
            self.request.transport.abort()
        return web.Response()

    @property
    def client_left(self) -> bool:
        """True if the client has closed the connection."""
        return self.request.transport is None or self.request.transport.is_closing()

    async def hold(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until the client has left, `until` is true, or the proxy ends."""
        await self.request.read()
        while not (self.client_left or until() or self._ended.is_set()):
            await asyncio.sleep(_LOOK_EVERY_S)


class Proxy:
    """Serves on 127.0.0.1 and hands every request to `handle`. Use it with `async with`.

    Attributes:
        port: Known once it serves.
    """

    def __init__(
        self,
        upstream: str,
        handle: Callable[[Passing], Awaitable[web.StreamResponse]],
        *,
        port: int = 0,
        routes: Iterable[web.RouteDef] = (),
    ) -> None:
        """`upstream` is the account's scheme, host and port; `routes` are endpoints of the proxy's own."""
        self.port = port
        self._upstream = upstream
        self._handle = handle
        self._ended = asyncio.Event()
        # Node closes idle connections, and a request on such a one would fail.
        self._session = ClientSession(connector=TCPConnector(force_close=True), auto_decompress=False)
        app: Any = web.Application(
            client_max_size=_MAX_BYTES, middlewares=[Access().middleware(), refuse_unreadable]
        )
        app.add_routes(routes)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        except BaseException:
            await self._stop()
            raise
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        self._ended.set()
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        return await self._handle(Passing(request, self._upstream, self._session, self._ended))
