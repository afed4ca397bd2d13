"""The host's HTTP side: is it ready, what has it done, and what misfortune is it to cause or to suffer.

GET    /health
GET    /admin/status
POST   /admin/steal   {"lease": "2" | null}           take this lease, or all, from hosts that are alive
POST   /admin/crash   {"at": a CrashPoint}            die by SIGKILL when processing gets there
DELETE /admin/crash                                   go on living
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from azure.core.exceptions import AzureError

from local.functions.crashing import CrashPoint
from local.functions.errors import describe
from local.functions.host import Host

_ADDRESS = "127.0.0.1"
_UNREADABLE = "unreadable"


@asynccontextmanager
async def served(host: Host, port: int) -> AsyncIterator[int]:
    """Serve a started host's HTTP side; yields the port (0 asks for any free one)."""
    runner = web.AppRunner(_Admin(host).application(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _ADDRESS, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class _Admin:
    """What cannot be done is answered with `{"error": …}` and 400, 404 or, where Cosmos DB fails, 503."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/health", self.health),
                web.get("/admin/status", self.status),
                web.post("/admin/steal", self.steal),
                web.post("/admin/crash", self.crash),
                web.delete("/admin/crash", self.live),
            ]
        )
        return application

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ready"})

    async def status(self, _: web.Request) -> web.Response:
        return web.json_response(self._host.status())

    async def steal(self, request: web.Request) -> web.Response:
        body = await _object(request)
        token = body.get("lease")
        if body.keys() - {"lease"} or not isinstance(token, str | None):
            return _problem(400, 'write {"lease": "2"} with a lease\'s token, or {} for all leases')
        try:
            leases = await self._host.steal(token)
        except AzureError as error:
            return _problem(503, f"the leases cannot be taken: {describe(error)}")
        if token is not None and not leases:
            return _problem(404, f"there is no lease {token!r}")
        return web.json_response({"leases": leases})

    async def crash(self, request: web.Request) -> web.Response:
        body = await _object(request)
        points = [str(point) for point in CrashPoint]
        if body.keys() != {"at"} or body["at"] not in points:
            return _problem(400, f'write {{"at": …}} with one of {", ".join(points)}')
        self._host.crash.armed = CrashPoint(body["at"])
        return web.json_response({"at": body["at"]})

    async def live(self, _: web.Request) -> web.Response:
        self._host.crash.armed = None
        return web.json_response({"at": None})


async def _object(request: web.Request) -> dict[str, Any]:
    """The body, which must be a JSON object; one that is not has a member that nothing knows."""
    try:
        body = await request.json()
    except ValueError:
        return {_UNREADABLE: None}
    return body if isinstance(body, dict) else {_UNREADABLE: body}


def _problem(status: int, what: str) -> web.Response:
    return web.json_response({"error": what}, status=status)
