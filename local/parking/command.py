"""`python -m local parking`: kill a consumer that parks keys; order is kept, and every effect is had once."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from local.parking import campaign
from outbox_emulators.process import Stopped, until_done

_LIMIT_S, _PER_EVENT_S, _PER_KILL_S = 120.0, 0.5, 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `parking`."""
    parser.add_argument(
        "--store", choices=("sqlite", "postgresql"), default="sqlite", help="where keys are parked"
    )
    parser.add_argument("--events", type=int, default=2000, help="number of events, at least")
    parser.add_argument("--kills", type=int, default=100, help="least number of processes that are killed")
    parser.add_argument("--logs", type=Path, default=Path(".local/parking-logs"), help="folder for the logs")


async def run(arguments: argparse.Namespace) -> int:
    """Run a campaign, and return the exit code. It is 0 when it passed, 1 when it did not, 130 when stopped."""
    try:
        outcome = await until_done(_run(arguments))
    except Stopped:
        return 130
    print(outcome.to_line(), flush=True)
    return 1 if outcome.wrong else 0


async def _run(arguments: argparse.Namespace) -> campaign.Outcome:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parking-")))
        if arguments.store == "postgresql":
            # Of the packages of an SQL outbox.
            from local.database.server import PostgresServer

            server = PostgresServer(folder / "data", 0)
            await server.start()
            stack.push_async_callback(server.stop)
            address = server.url
        else:
            address = str(folder / "store.sqlite")
        return await campaign.run(
            address,
            arguments.logs,
            events=arguments.events,
            kills=arguments.kills,
            limit_s=_LIMIT_S + _PER_EVENT_S * arguments.events + _PER_KILL_S * arguments.kills,
        )
