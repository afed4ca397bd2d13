"""A console's topic, hosts and view in memory, for tests of what is built on them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from relay.console.model import DeadLetterGroup, Delivery, Flow, Snapshot, Subscription, Timeline
from relay.console.ports import Attempt
from relay.errors import ServiceError


@dataclass
class InMemoryTopic:
    """A topic. Attributes as the methods of ports.Topic; `fails` is what they raise, as long as it is set."""

    counts: list[Subscription] = field(default_factory=list)
    letters: dict[str, list[DeadLetterGroup]] = field(default_factory=dict)
    arrivals: dict[str, list[Delivery]] = field(default_factory=dict)
    fails: str | None = None
    closed: bool = False

    async def subscriptions(self) -> Sequence[Subscription]:
        self._answer()
        return self.counts

    async def dead_letters(self, subscription: str, /) -> Sequence[DeadLetterGroup]:
        self._answer()
        return self.letters.get(subscription, [])

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        self._answer()
        return self.arrivals.get(partition_key, [])

    async def close(self) -> None:
        self.closed = True

    def _answer(self) -> None:
        if self.fails is not None:
            raise ServiceError(self.fails)


@dataclass
class InMemoryHosts:
    """The relay's processes."""

    retries: dict[str, Attempt] = field(default_factory=dict)
    closed: bool = False

    async def attempts(self) -> Mapping[str, Attempt]:
        return self.retries

    async def close(self) -> None:
        self.closed = True


class InMemoryView:
    """A view that shows what it is given.

    Attributes:
        timelines: By partition key; any other key has nothing.
        asked: The keys, limits and whether data was asked for, of the last hundred timelines.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._latest = snapshot or Snapshot(0, 0.0, Flow(0.0))
        self._changed = asyncio.Condition()
        self.timelines: dict[str, Timeline] = {}
        self.asked: deque[tuple[str, int, bool]] = deque(maxlen=100)

    @property
    def latest(self) -> Snapshot:
        return self._latest

    async def show(self, snapshot: Snapshot) -> None:
        """Make this the latest snapshot; its number has to be above that of the one before."""
        async with self._changed:
            self._latest = snapshot
            self._changed.notify_all()

    async def changed(self, number: int, /) -> Snapshot:
        async with self._changed:
            await self._changed.wait_for(lambda: self._latest.number > number)
            return self._latest

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        self.asked.append((partition_key, limit, data))
        return self.timelines.get(partition_key, Timeline(partition_key, ()))
