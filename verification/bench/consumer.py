"""`python -m verification.bench.consumer`: a consumer's process, with `inbox` or without it, that measures itself.

It prints READY when its store is open, begins at a line on its standard input, and ends when it has had a number
of effects.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from typing import Any, Protocol

from local.stack.environment import TOPIC
from outbox_relay import inbox
from outbox_relay.emulators.process import announce
from verification.bench.baselines.receivers import ByHand, InTurn
from verification.bench.effects import Effects, Sqlite

SUBSCRIPTION = "all"
INBOX, BY_HAND, IN_TURN = "inbox", "by-hand", "in-turn"

_ACCEPT_S = 5.0
# Until the last completions are answered.
_SETTLED_S = 0.3


class Receiving(Protocol):
    """The receiving that is measured."""

    async def run(self) -> None:
        """Receive until `stop`."""

    def stop(self) -> None:
        """Settle what was handled, and end."""


async def consume(arguments: argparse.Namespace) -> dict[str, Any]:
    """Receive, and return how long that took.

    Raises:
        RuntimeError: An effect was not the next of its key.
    """
    effects, store = Effects(arguments.events), Sqlite(arguments.database)
    async with inbox.connect(os.environ["SERVICEBUS"]) as client:
        receiving: Receiving
        names = TOPIC, SUBSCRIPTION
        sizes = {"sessions": arguments.sessions, "prefetch": arguments.prefetch}
        if arguments.kind == INBOX:
            handler, (topic, subscription) = store.with_inbox(effects), names
            receiving = inbox.Receiver(
                client, handler, topic=topic, subscription=subscription, accept_s=_ACCEPT_S, **sizes
            )
        elif arguments.kind == BY_HAND:
            receiving = ByHand(client, *names, store.by_hand(effects), **sizes)
        else:
            receiving = InTurn(client, *names, store.without_once(effects))
        announce({"part": "consumer"})
        await asyncio.to_thread(sys.stdin.readline)
        began, began_at = time.process_time(), time.monotonic()
        running = asyncio.create_task(receiving.run())
        waiting = asyncio.create_task(effects.done.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(_SETTLED_S)
        receiving.stop()
        await running
        if effects.wrong:
            raise RuntimeError(f"the measurement is invalid: {effects.wrong}")
        return {"seconds": effects.at - began_at, "processor": time.process_time() - began}


def main() -> None:
    """Receive with the connection string in SERVICEBUS, and print seconds as JSON."""
    parser = argparse.ArgumentParser(prog="python -m verification.bench.consumer", description=__doc__)
    parser.add_argument("kind", choices=(INBOX, BY_HAND, IN_TURN))
    parser.add_argument("database", help="the path of a file of SQLite")
    parser.add_argument("--events", type=int, required=True, help="number of effects after which to end")
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--prefetch", type=int, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    print(json.dumps(asyncio.run(consume(arguments))), flush=True)


if __name__ == "__main__":
    main()
