"""The operator of a consumer that parks keys: releases them, too early or in time, and discards messages."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress

from outbox_relay import inbox
from verification.journal.entries import Accepted, Entry, Handled
from verification.simulation.receiving.ledgers import Ledger
from verification.simulation.receiving.watch import Watch
from verification.simulation.world import World

Name = tuple[str, str]
"""The key and the id of an event."""

_LOOKS_S = (2.0, 30.0)
_AGAIN_S = 0.5
# What is done about a parked key, and how often.
_ACTIONS = {"mend": 8, "release": 4, "discard-first": 4, "discard-all": 1}


class Operator:
    """Looks at the parked keys now and then, in a process of its own.

    Attributes:
        discarded: What was discarded, with the number of entries that the journal had then.
    """

    def __init__(self, world: World, consumer: str, ledger: Ledger, watch: Watch, poison: set[Name]) -> None:
        """`poison` is what the consumer cannot handle, until it is mended."""
        self.discarded: dict[Name, int] = {}
        self._consumer = consumer
        self._ledger = ledger
        self._watch = watch
        self._poison = poison
        self._process = world.process(f"{consumer}-operator")
        self._process.start(self._run())

    def violations(self, journal: Iterable[Entry]) -> Iterator[str]:
        """Yield the events handled after they had been discarded.

        Yields those handled ahead of one discarded later without an effect, too.
        """
        entries = list(journal)
        number = {(each.key, each.id): each.number for each in entries if isinstance(each, Accepted)}
        handled = [
            (line, each)
            for line, each in enumerate(entries)
            if isinstance(each, Handled) and each.consumer == self._consumer
        ]
        had = {(each.key, each.id) for _, each in handled}
        for line, each in handled:
            name = each.key, each.id
            if self.discarded.get(name, line) < line:
                yield f"{name} had an effect at {self._consumer} after it was discarded"
            for other, since in self.discarded.items():
                if other not in had and other[0] == each.key and number[other] < number[name] and since > line:
                    yield f"{name} had an effect at {self._consumer} ahead of {other}, which was parked"

    async def _run(self) -> None:
        desk = None
        entropy = self._process.world.entropy
        while True:
            await asyncio.sleep(entropy.uniform(*_LOOKS_S))
            with suppress(sqlite3.OperationalError):  # another process is in a transaction
                desk = desk or self._ledger.open(self._process)
                assert desk.parking is not None
                for key in await desk.parking.keys():
                    action = entropy.choices(list(_ACTIONS), list(_ACTIONS.values()))[0]
                    await self._act(desk.parking, key, action)

    async def _act(self, parking: inbox.Parking, key: inbox.ParkedKey, action: str) -> None:
        if action.startswith("discard"):
            await self._discard(parking, key, 1 if action == "discard-first" else 1000)
        if action == "mend":
            self._poison -= {name for name in self._poison if name[0] == key.key}
        try:
            await parking.release(key.topic, key.key)
        except inbox.NotReleased:
            await self._discard(parking, key, 1)

    async def _discard(self, parking: inbox.Parking, key: inbox.ParkedKey, limit: int) -> None:
        shown = await parking.messages(key.topic, key.key, limit=limit)
        discarded = await parking.discard(key.topic, key.key, shown)
        # Nothing happens between its commit and this: what is seen now was before it.
        self._watch.look(self._consumer, self._ledger)
        for each in discarded:
            self.discarded.setdefault((each.key, each.id), self._watch.entries)
