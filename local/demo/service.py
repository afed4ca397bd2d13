"""`python -m local contacts`: the contact service's API under uvicorn, as a part of the stack."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack, nullcontext

import uvicorn
from azure.core.exceptions import AzureError
from fastapi import Request
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from local.stack.arguments import ExitWithStdin, Number
from outbox_relay.emulators.access import Access
from outbox_relay.emulators.process import announce, until_stopped
from samples.contacts.api.application import create_app
from samples.contacts.settings import SettingMissing
from samples.contacts.stores import open_contacts

_KEEP_ALIVE_S = 75


async def run(*, port: Number = 8000, exit_with_stdin: ExitWithStdin = False) -> int:
    """Serve until stopped: 0; 1 when the service cannot start, with the reason on standard error.

    Args:
        port: of the API; 0 takes a free one
    """
    reasons: tuple[type[Exception], ...] = (SettingMissing, PortInUse, *_no_answer())
    async with AsyncExitStack() as opened:
        try:
            contacts = await opened.enter_async_context(open_contacts())
            listening = opened.enter_context(_listening(port))
        except reasons as reason:
            print(f"The contact service cannot start: {' '.join(str(reason).split())}", file=sys.stderr)
            return 1
        app = create_app(lambda: nullcontext(contacts))
        return await _serve(app, listening, exit_with_stdin=exit_with_stdin)


async def _serve(api: ASGIApp, listening: socket.socket, *, exit_with_stdin: bool) -> int:
    # Longer than clients keep idle connections: otherwise the server could close one as a request arrives.
    config = uvicorn.Config(guarded(api), log_level="warning", access_log=False, timeout_keep_alive=_KEEP_ALIVE_S)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not (server.started or serving.done()):
        await asyncio.sleep(0.01)
    if serving.done():
        return 1
    announce({"part": "contacts", "port": listening.getsockname()[1]})
    stopping = asyncio.create_task(until_stopped(exit_with_stdin=exit_with_stdin))
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    return 0


class PortInUse(Exception):
    """Something else listens on the port."""


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise PortInUse(f"Port {port} is in use: choose another with --port, or 0 for any free one.") from error


def _no_answer() -> tuple[type[Exception], ...]:
    """Return the errors of opening the store if the account or the database does not answer."""
    if not os.environ.get("SQL"):
        return (AzureError,)
    # Only then is it installed.
    from sqlalchemy.exc import SQLAlchemyError

    return (SQLAlchemyError,)


def guarded(api: ASGIApp) -> ASGIApp:
    """Return the API with a guard: 403 for what a page of another site asks through a browser."""
    access = Access()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = access.refusal(Request(scope).headers) if scope["type"] == "http" else None
        await (api if refusal is None else PlainTextResponse(refusal, 403))(scope, receive, send)

    return serve
