"""Serves the console of the demo, and compares what it counts with what the checker counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from local.console.serving import application_of, observer_of_stream, topic_of, view_of_stream
from local.demo.tally import Tally
from local.stack.supervisor import Stack
from outbox_relay.operator.console.model import Snapshot
from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.server import serving

# A host that takes leases over may need a while to store that everything is done.
_WITHIN_S = 30.0
_PAUSE_S = 0.25


@asynccontextmanager
async def serving_observers(stack: Stack, env_file: Path) -> AsyncIterator[tuple[str, Sequence[Observer]]]:
    """Serve the page, or those of several streams, without what changes anything.

    Yields the address, and the observer of each stream, in their order. They look all the time. The commands on
    the pages name the env file.
    """
    streams = stack.streams
    async with AsyncExitStack() as opened:
        observers = [
            await opened.enter_async_context(observer_of_stream(stack, each, topic_of(stack, each), always=True))
            for each in streams
        ]
        views = [
            view_of_stream(stack, each, observer, env_file)
            for each, observer in zip(streams, observers, strict=True)
        ]
        app = application_of(stack, streams, views)
        yield await opened.enter_async_context(serving(app, "127.0.0.1", 0)), observers


async def differences(observer: Observer, tally: Tally, quarantined: int, subscription: str) -> list[str]:
    """Return the differences between the console and the checker once nothing is in flight.

    It is empty if there are none.

    Args:
        observer: The console's, of one stream; it looks at the stack.
        tally: The checker's counts of the stream's topic.
        quarantined: Number of records in the stream's quarantine.
        subscription: The one that the checker receives from.
    """
    until = time.monotonic() + _WITHIN_S
    found = _differences(await observer.look(), tally, quarantined, subscription)
    while found and time.monotonic() < until:
        await asyncio.sleep(_PAUSE_S)
        found = _differences(await observer.look(), tally, quarantined, subscription)
    return found


def _differences(shown: Snapshot, tally: Tally, quarantined: int, subscription: str) -> list[str]:
    delivered = {each.name: each.delivered for each in shown.subscriptions}
    counts = {
        "committed": (shown.flow.committed, tally.written),
        "accepted": (shown.flow.published, tally.written - quarantined),
        "waiting": (shown.flow.waiting, 0),
        "quarantined": (shown.flow.quarantined, quarantined),
        "delivered": (delivered.get(subscription), tally.delivered),
        "behind": (sum(partition.behind for partition in shown.partitions), 0),
    }
    return [
        f"{name}: the console {ours}, the checker {its}" for name, (ours, its) in counts.items() if ours != its
    ]
