"""The host's HTTP endpoints: readiness, counts, and faults.

GET    /health
GET    /admin/status
POST   /admin/steal   {"lease": "2" | null}           steal this lease, or all, from hosts at work
POST   /admin/crash   {"at": a CrashPoint, "kill": a Victim}   SIGKILL the victim when processing gets there;
                      at once without "at", host and worker without "kill"
DELETE /admin/crash                                   cancel it
GET    /admin/edges                                   how often each edge was met
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from azure.core.exceptions import AzureError

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.functions.crashing import CrashPoint, Victim
from outbox_relay.emulators.functions.errors import describe
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.http_requests import json_body, refuse_unreadable

_ADDRESS = "127.0.0.1"
_UNREADABLE = "unreadable"
_LAST_WORDS_S = 0.05


@asynccontextmanager
async def served(host: Host, port: int) -> AsyncIterator[int]:
    """Serve a started host's endpoints; yields the port, which 0 chooses among the free ones."""
    runner = web.AppRunner(_Admin(host).application(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _ADDRESS, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class _Admin:
    """Answers errors with `{"error": …}` and 400, 404 or, if Cosmos DB fails, 503."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def application(self) -> web.Application:
        application = web.Application(middlewares=[Access().middleware(), refuse_unreadable])
        application.add_routes(
            [
                web.get("/health", self.health),
                web.get("/admin/status", self.status),
                web.post("/admin/steal", self.steal),
                web.post("/admin/crash", self.crash),
                web.delete("/admin/crash", self.live),
                web.get("/admin/edges", self.edges),
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
        body = {"at": None, "kill": str(Victim.MACHINE), **await _object(request)}
        points, victims = [str(point) for point in CrashPoint], [str(victim) for victim in Victim]
        if body.keys() != {"at", "kill"} or body["at"] not in [None, *points] or body["kill"] not in victims:
            return _problem(
                400,
                f'write {{"at": …, "kill": …}} with one of {", ".join(points)}, or null for now, '
                f"and one of {', '.join(victims)}",
            )
        victim = Victim(body["kill"])
        if body["at"] is None:
            # The answer comes first: this process may be the one that dies.
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._host.crash.kill, victim)
        else:
            self._host.crash.arm(CrashPoint(body["at"]), victim)
        return web.json_response({"at": body["at"], "kill": victim})

    async def live(self, _: web.Request) -> web.Response:
        self._host.crash.disarm()
        return web.json_response({"at": None})

    async def edges(self, _: web.Request) -> web.Response:
        return web.json_response(self._host.edges.as_json())


async def _object(request: web.Request) -> dict[str, Any]:
    """Return the body, a JSON object; any other body becomes an object with an unknown member."""
    try:
        body = await json_body(request)
    except ValueError:
        return {_UNREADABLE: None}
    return body if isinstance(body, dict) else {_UNREADABLE: body}


def _problem(status: int, what: str) -> web.Response:
    return web.json_response({"error": what}, status=status)
