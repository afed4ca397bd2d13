"""`python -m local azurite`: Blob Storage, as a part of the stack."""

from __future__ import annotations

import argparse
import asyncio
import sys

from local.azurite.server import Azurite, AzuriteFailed
from outbox_emulators.process import announce, until_stopped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `azurite`."""
    parser.add_argument("--port", type=int, default=10000, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--exit-with-stdin", action="store_true", help="also stop when standard input ends")


async def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped: 0; 1 when Azurite cannot be started, or ends, with the reason on standard error."""
    try:
        async with Azurite(arguments.port) as server:
            announce({"part": "azurite", "port": server.port, "connection_string": server.connection_string})
            stopping = asyncio.create_task(until_stopped(exit_with_stdin=arguments.exit_with_stdin))
            ending = asyncio.create_task(server.wait())
            await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            ended = ending.done()
            ending.cancel()
    except AzuriteFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 1 if ended else 0
