"""The host's HTTP side: is it ready, and what has it done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from local.functions.host import Host

_ADDRESS = "127.0.0.1"


@asynccontextmanager
async def served(host: Host, port: int) -> AsyncIterator[int]:
    """Serve `GET /health` and `GET /admin/status` of a started host; yields the port (0 asks for any free one)."""

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ready"})

    async def status(_: web.Request) -> web.Response:
        return web.json_response(host.status())

    application = web.Application()
    application.router.add_get("/health", health)
    application.router.add_get("/admin/status", status)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _ADDRESS, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
