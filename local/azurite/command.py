"""`python -m local azurite`: Blob Storage, as a part of the stack."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from local.azurite.faults import FaultyBlobs
from local.azurite.server import Azurite, AzuriteFailed, connection_string
from local.stack.arguments import ExitWithStdin, Number
from local.stack.parts import exit_code_of
from outbox_relay.emulators.process import announce, until_stopped


async def run(*, port: Number = 10000, faults: bool = False, exit_with_stdin: ExitWithStdin = False) -> int:
    """Serve until stopped: 0; 1 when Azurite cannot be started, with the reason on standard error.

    When Azurite ends, return what passes its end on: `exit_code_of`, or 1 if it ended with 0.

    Args:
        port: on 127.0.0.1; 0 takes a free one
        faults: let /admin/faults inject faults into writes
    """
    try:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Azurite(0 if faults else port))
            served = server.port
            if faults:
                served = (await stack.enter_async_context(FaultyBlobs(server.endpoint, port))).port
            known = connection_string(f"http://127.0.0.1:{served}")
            announce({"part": "azurite", "port": served, "connection_string": known})
            stopping = asyncio.create_task(until_stopped(exit_with_stdin=exit_with_stdin))
            ending = asyncio.create_task(server.wait())
            await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            code = ending.result() or 1 if ending.done() else 0
            ending.cancel()
    except AzuriteFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return exit_code_of(code)
