"""Compares what the console counts with what the checker counted."""

from __future__ import annotations

import asyncio
import time

from local.demo.tally import Tally
from relay_operator.console.model import Snapshot
from relay_operator.console.observer import Observer

# A host that takes leases over may need a while to store that everything is done.
_WITHIN_S = 30.0
_PAUSE_S = 0.25


async def differences(observer: Observer, tally: Tally, quarantined: int, subscription: str) -> list[str]:
    """Return the differences between the console and the checker once nothing is in flight.

    It is empty if there are none.

    Args:
        observer: The console's; it looks at the stack.
        tally: The checker's counts.
        quarantined: Number of records in quarantine.
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
