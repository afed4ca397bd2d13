"""`python -m local contacts`: the contact service's API under uvicorn, as a part of the stack."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys

import uvicorn
from fastapi import Request
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from outbox_emulators.access import Access
from outbox_emulators.process import announce, until_stopped
from samples.contacts.api import app
from samples.contacts.settings import SettingMissing
from samples.contacts.stores import check_settings

_KEEP_ALIVE_S = 75


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this part's own options."""
    parser.add_argument("--port", type=int, default=8000, help="of the API; 0 takes a free one")
    parser.add_argument("--exit-with-stdin", action="store_true", help="also stop when standard input ends")


async def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped: 0; 1 when the service cannot start, with the reason on standard error."""
    try:
        check_settings()
    except SettingMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    with socket.create_server(("127.0.0.1", arguments.port)) as listening:
        # Longer than clients keep idle connections: otherwise the server could close one as a request arrives.
        config = uvicorn.Config(
            guarded(app), log_level="warning", access_log=False, timeout_keep_alive=_KEEP_ALIVE_S
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        if serving.done():
            return 1
        announce({"part": "contacts", "port": listening.getsockname()[1]})
        stopping = asyncio.create_task(until_stopped(exit_with_stdin=arguments.exit_with_stdin))
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    return 0


def guarded(api: ASGIApp) -> ASGIApp:
    """The API, with 403 for what a page of another site asks through a browser."""
    access = Access()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = access.refusal(Request(scope).headers) if scope["type"] == "http" else None
        await (api if refusal is None else PlainTextResponse(refusal, 403))(scope, receive, send)

    return serve
