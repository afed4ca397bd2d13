"""Receive many events: each has its effect once, and memory does not grow.

The consumer is a process with `inbox` and a store in SQLite. Sessions come and go: each has a hundred events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from local.soak.judgement import SAMPLES_NEEDED, Judgement
from local.stack.parts import Part
from verification.bench.broker import Broker
from verification.bench.consumer import INBOX, SQLITE, SUBSCRIPTION
from verification.bench.receiving import fill

_EVENTS_OF_KEY = 100
_KEYS_AT_A_TIME = 40
_WAITING_AT_MOST = 8_000
_LOOK_EVERY_S = 0.2


async def soak(events: int, every: int, sessions: int, scratch: Path) -> Judgement:
    """Receive `events` events, and sample the consumer's resident size after each `every`.

    Raises:
        PartFailed: An effect was missing, or not the next of its key.
    """
    async with Broker(scratch, subscriptions=[SUBSCRIPTION]) as broker:
        options = {"--events": events, "--every": every, "--sessions": sessions}
        part = await Part.start(
            *("consumer", "verification.bench.consumer", INBOX, SQLITE, str(scratch / "consumer.sqlite")),
            *(str(each) for pair in options.items() for each in pair),
            log=scratch / "consumer.log",
            environment={"SERVICEBUS": broker.connection_string},
        )
        try:
            part.send_line("begin")
            sending = asyncio.create_task(_send(broker, events))
            line = await part.output.readline()
            if not line:
                await part.wait()
                raise part.failure("has not received everything")
            await sending
            waiting = await broker.waiting(SUBSCRIPTION)
        finally:
            await part.stop()
    measured = json.loads(line)
    return Judgement.of(events, waiting, measured["seconds"], measured["resident"])


async def _send(broker: Broker, events: int) -> None:
    for _ in range(events // (_EVENTS_OF_KEY * _KEYS_AT_A_TIME)):
        while await broker.waiting(SUBSCRIPTION) > _WAITING_AT_MOST:
            await asyncio.sleep(_LOOK_EVERY_S)
        await fill(broker.connection_string, _KEYS_AT_A_TIME, _EVENTS_OF_KEY)


def main(arguments: Sequence[str]) -> int:
    """Run the soak, and return the exit code.

    It is 0 when the memory stayed flat, 1 when it did not, 2 for a number of events that does not fit.
    """
    parser = argparse.ArgumentParser(prog="python -m verification.bench.receiving_soak", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="a multiple of 4000 (default: %(default)s)")
    parser.add_argument("--every", type=int, default=100_000, help="events between two samples of the memory")
    parser.add_argument("--sessions", type=int, default=16, help="sessions at a time")
    chosen = parser.parse_args(arguments)
    wave = _EVENTS_OF_KEY * _KEYS_AT_A_TIME
    if chosen.events % wave or not 0 < SAMPLES_NEEDED * chosen.every <= chosen.events:
        print(
            f"--events must be a multiple of {wave}, and at least {SAMPLES_NEEDED} times --every.", file=sys.stderr
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="outbox-relay-soak-") as scratch:
        judgement = asyncio.run(soak(chosen.events, chosen.every, chosen.sessions, Path(scratch)))
    print(json.dumps(judgement.summary()), flush=True)
    return 0 if judgement.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
