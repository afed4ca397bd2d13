"""A console's outbox, topic and view in memory, for tests of what is built on them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from relay.console.model import Committed, DeadLetterGroup, Delivery, Flow, Snapshot, Subscription, Timeline
from relay.console.ports import Attempt, Position
from relay.errors import ServiceError


@dataclass
class InMemoryOutbox:
    """An outbox; it passes the contract suite in `tests/contracts/test_console_outboxes.py`.

    Attributes:
        committed: All events, in the order of commits.
        keys: The name of the position of each key; "0" for the others.
        positions_at: How far the relay is, by the name of the position; none for nothing done.
        payloads: Their data, by key and id.
        fails: What every method raises, as long as it is set.
        closed: Whether it was closed.
    """

    committed: list[Committed] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    positions_at: dict[str, tuple[int, int] | tuple[str, int] | None] = field(default_factory=lambda: {"0": None})
    payloads: dict[tuple[str, str], str] = field(default_factory=dict)
    fails: str | None = None
    closed: bool = False
    _read: int = 0

    def commit(self, identifier: str, partition_key: str = "k", **more: object) -> Committed:
        """Commit an event; `more` are fields of Committed, and `data`, its JSON text."""
        data = more.pop("data", None)
        if data is not None:
            self.payloads[partition_key, identifier] = str(data)
        values = {
            "id": identifier,
            "partition_key": partition_key,
            "action": "Renamed",
            "committed_at": 1_000_000.0,
            "created_at": None,
            "sequence": None,
            "traceparent": None,
            "partition": self.keys.get(partition_key, "0"),
            "place": (len(self.committed) + 1, 0),
        }
        event = Committed(**(values | more))  # type: ignore[arg-type]
        self.committed.append(event)
        return event

    def pass_all(self) -> None:
        """As if the relay had published everything."""
        for event in self.committed:
            at = self.positions_at.get(event.partition)
            if at is None or event.place > at:
                self.positions_at[event.partition] = event.place

    def from_the_relays_position(self) -> InMemoryOutbox:
        """Begin with what the relay has not passed."""
        places = {event.id: self.positions_at.get(event.partition) for event in self.committed}
        self.committed = [
            event for event in self.committed if (at := places[event.id]) is None or event.place > at
        ]
        return self

    async def news(self, limit: int, /) -> Sequence[Committed]:
        self._answer()
        found = self.committed[self._read : self._read + limit]
        self._read += len(found)
        return found

    async def positions(self) -> Sequence[Position]:
        self._answer()
        return [
            Position(name, "host", None if place is None else str(place[0]), place)
            for name, place in self.positions_at.items()
        ]

    async def partition_of(self, partition_key: str, /) -> str | None:
        self._answer()
        return self.keys.get(partition_key, "0")

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        self._answer()
        found = [event for event in self.committed if event.partition_key == partition_key]
        return found[-limit:], len(found) > limit

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        self._answer()
        return {each: self.payloads[partition_key, each] for each in ids if (partition_key, each) in self.payloads}

    async def close(self) -> None:
        self.closed = True

    def _answer(self) -> None:
        if self.fails is not None:
            raise ServiceError(self.fails)


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
