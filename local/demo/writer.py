"""Writes contacts and their events, each change one transactional batch, at a steady rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy

from local.demo.contacts import Change
from local.demo.tally import Tally


class Pace:
    """Spreads events evenly; `rate` in events a second, 0 for as fast as possible."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    async def take(self, events: int) -> None:
        """Wait until it is time for so many more events."""
        now = time.monotonic()
        self._next = max(self._next, now - 1.0) + events * self._interval
        if self._next > now:
            await asyncio.sleep(self._next - now)


async def write_lives(
    container: ContainerProxy, lives: list[Iterator[Change]], tally: Tally, *, writers: int, rate: float
) -> None:
    """Write every life to its end; one writer has one contact at a time, so a contact's commits have an order."""
    pace = Pace(rate)
    waiting = iter(lives)

    async def work() -> None:
        for life in waiting:
            etag = None
            for change in life:
                await pace.take(len(change.events))
                etag = await _commit(container, change, etag, tally)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(writers):
            tasks.create_task(work())


async def _commit(container: ContainerProxy, change: Change, etag: str | None, tally: Tally) -> str:
    contact: tuple[object, ...]
    if change.created:
        contact = ("create", (change.contact,))
    else:
        unchanged = {"if_match_etag": etag, "match_condition": MatchConditions.IfNotModified}
        contact = ("replace", (change.contact["id"], change.contact), unchanged)
    creates = [("create", (document,)) for document in (*change.others, *change.events)]
    results = await container.execute_item_batch([contact, *creates], partition_key=change.partition_key)
    returned = time.monotonic()
    for event in change.events:
        tally.wrote(event, returned)
    return str(results[0]["eTag"])
