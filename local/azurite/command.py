"""`python -m local azurite`: Blob Storage, as a part of the stack."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack

from local.azurite.faults import FaultyBlobs
from local.azurite.server import Azurite, AzuriteFailed, connection_string
from local.stack.parts import exit_code_of
from outbox_relay.emulators.process import announce, until_stopped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `azurite`."""
    parser.add_argument("--port", type=int, default=10000, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--faults", action="store_true", help="let /admin/faults inject faults into writes")
    parser.add_argument("--exit-with-stdin", action="store_true", help="also stop when standard input ends")


async def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped: 0; 1 when Azurite cannot be started, with the reason on standard error.

    When Azurite ends, return what passes its end on: `exit_code_of`, or 1 if it ended with 0.
    """
    try:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Azurite(0 if arguments.faults else arguments.port))
            port = server.port
            if arguments.faults:
                port = (await stack.enter_async_context(FaultyBlobs(server.endpoint, arguments.port))).port
            known = connection_string(f"http://127.0.0.1:{port}")
            announce({"part": "azurite", "port": port, "connection_string": known})
            stopping = asyncio.create_task(until_stopped(exit_with_stdin=arguments.exit_with_stdin))
            ending = asyncio.create_task(server.wait())
            await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            code = ending.result() or 1 if ending.done() else 0
            ending.cancel()
    except AzuriteFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return exit_code_of(code)
