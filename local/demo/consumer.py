"""The consumer of a topic, `python -m local.demo.consumer TOPIC SESSIONS`: it prints each message that it handles.

A process of its own, as in production: beside the writers it would bound what the demo measures.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from local.stack.parts import Part
from outbox_relay import inbox
from outbox_relay.emulators.process import announce, heed_signals, until_stopped
from outbox_relay.inbox.messages import Handler
from relay.config.settings import SERVICEBUS

SUBSCRIPTION = "all"

# There are as many sessions as keys: each is kept, as the SDK opens a connection for it.
_KEPT_S = 5.0


@asynccontextmanager
async def consumer(settings: Mapping[str, str], topic: str, sessions: int, log: Path) -> AsyncIterator[Part]:
    """Start the consumer of a topic for the duration of the block.

    Args:
        settings: The settings of the stack.
        topic: The topic's name.
        sessions: Number of sessions received concurrently.
        log: The file that it logs to.
    """
    words = ("local.demo.consumer", topic, str(sessions))
    part = await Part.start(f"the consumer of {topic}", *words, log=log, environment=settings)
    try:
        yield part
    finally:
        await part.stop()


async def pass_on(part: Part, handler: Handler) -> None:
    """Pass each message that a consumer handles to a handler. Raises PartFailed if the consumer ends."""
    async for line in part.output:
        result = handler(_message(json.loads(line)))
        if inspect.isawaitable(result):
            await result
    raise part.failure("has ended")


def _message(found: dict[str, Any]) -> inbox.Message:
    enqueued_at = found["enqueued_at"] and datetime.fromisoformat(found["enqueued_at"])
    return inbox.Message(**{**found, "body": found["body"].encode(), "enqueued_at": enqueued_at})


def _print(message: inbox.Message) -> None:
    print(json.dumps({**asdict(message), "body": message.body.decode()}, default=datetime.isoformat), flush=True)


async def _receive(topic: str, sessions: int) -> None:
    heed_signals()
    async with inbox.connect(os.environ[SERVICEBUS]) as client:
        receiver = inbox.Receiver(
            client, _print, topic=topic, subscription=SUBSCRIPTION, sessions=sessions, idle_s=_KEPT_S
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(receiver.run())
            announce({"part": "consumer"})
            await until_stopped(exit_with_stdin=True)
            receiver.stop()


if __name__ == "__main__":
    asyncio.run(_receive(sys.argv[1], int(sys.argv[2])))
