"""A store in memory, for tests, which parks keys too."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from uuid import uuid4

from outbox_relay.inbox.errors import NotStorable
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.parking import (
    ONLY_PLACE,
    Cause,
    Claim,
    ClaimLost,
    Kept,
    NotReleased,
    ParkedKey,
    ParkedMessage,
    decode,
    encode,
    position_among,
)
from outbox_relay.inbox.stores.port import Arrival, Gap, Identity, Step, Turn, advance, entity_of


@dataclass(slots=True)
class _Row:
    """A parked key, and its messages by their order. A claim has a token and an end, in seconds of the clock."""

    cause: Cause
    since: datetime
    messages: dict[tuple[int, int], ParkedMessage] = field(default_factory=dict)
    is_released: bool = False
    token: str = ""
    until: float = 0.0

    @property
    def first(self) -> ParkedMessage:
        return self.messages[min(self.messages)]


class MemoryParking:
    """The part of `MemoryStore` that parks keys. See `Parking`.

    Args:
        handled: When each message was handled.
        turn: Of whoever is inside a block of `once`.
    """

    def __init__(self, handled: dict[Identity, datetime], turn: Turn) -> None:
        self._handled = handled
        self._turn = turn
        self._rows: dict[tuple[str, str], _Row] = {}

    async def is_parked(self, topic: str, key: str) -> bool:
        """See `Parking.is_parked`."""
        return (topic, key) in self._rows

    async def park(self, message: ParkedMessage, cause: Cause) -> Kept:
        """See `Parking.park`."""
        async with self._turn.take():
            if self._is_handled(message):
                return Kept.HANDLED
            row = self._rows.setdefault((message.topic, message.key), _Row(cause, datetime.now(UTC)))
            return self._add(row, message)

    async def set_aside(self, message: ParkedMessage) -> Kept:
        """See `Parking.set_aside`."""
        async with self._turn.take():
            row = self._rows.get((message.topic, message.key))
            if row is None:
                return Kept.NOT_PARKED
            return Kept.HANDLED if self._is_handled(message) else self._add(row, message)

    async def claim(self, topic: str, lasts: timedelta) -> Claim | None:
        """See `Parking.claim`."""
        now = time.time()
        for (its_topic, key), row in self._rows.items():
            if its_topic == topic and row.is_released and row.until <= now:
                row.token, row.until = uuid4().hex, now + lasts.total_seconds()
                return Claim(topic, key, row.token)
        return None

    async def renew(self, claim: Claim, lasts: timedelta) -> bool:
        """See `Parking.renew`."""
        row = self._rows.get((claim.topic, claim.key))
        if row is None or row.token != claim.token:
            return False
        row.until = time.time() + lasts.total_seconds()
        return True

    async def next(self, claim: Claim, done: ParkedMessage | None = None) -> ParkedMessage | None:
        """See `Parking.next`."""
        row = self._claimed(claim)
        self._remove(claim.topic, claim.key, row, [] if done is None else [done])
        if not row.messages:
            return None
        first = replace(row.first, attempts=row.first.attempts + 1)
        row.messages[first.order] = first
        return first

    async def give_back(self, claim: Claim, done: ParkedMessage | None = None) -> None:
        """See `Parking.give_back`."""
        row = self._claimed(claim)
        self._remove(claim.topic, claim.key, row, [] if done is None else [done])
        row.token, row.until = "", 0.0

    async def fail(self, claim: Claim, cause: Cause) -> None:
        """See `Parking.fail`."""
        row = self._claimed(claim)
        row.cause, row.since, row.is_released, row.token, row.until = cause, datetime.now(UTC), False, "", 0.0

    async def keys(self) -> list[ParkedKey]:
        """See `Parking.keys`."""
        return [
            ParkedKey(topic, key, row.since, row.cause, len(row.messages), row.is_released)
            for (topic, key), row in sorted(self._rows.items(), key=lambda item: item[0])
        ]

    async def messages(
        self, topic: str, key: str, *, after: ParkedMessage | None = None, limit: int = 1000
    ) -> list[ParkedMessage]:
        """See `Parking.messages`."""
        row = self._rows.get((topic, key))
        found = sorted(row.messages) if row is not None else []
        chosen = [order for order in found if after is None or order > after.order][:limit]
        return [row.messages[order] for order in chosen] if row is not None else []

    async def release(self, topic: str, key: str) -> bool:
        """See `Parking.release`."""
        row = self._rows.get((topic, key))
        if row is None:
            return False
        if row.first.message is None:
            raise NotReleased(row.first)
        if not row.is_released:
            row.is_released = True
            row.messages = {order: replace(each, attempts=0) for order, each in row.messages.items()}
        return True

    async def discard(self, topic: str, key: str, messages: Sequence[ParkedMessage]) -> Sequence[ParkedMessage]:
        """See `Parking.discard`."""
        async with self._turn.take():
            row = self._rows.get((topic, key))
            if row is None:
                return []
            found = [(each, row.messages.get(each.order)) for each in messages]
            chosen = [stored for each, stored in found if stored is not None and each.is_record_of(stored)]
            for each in chosen:
                if each.id:
                    self._handled.setdefault(Identity(topic, key, each.id), datetime.now(UTC))
            self._remove(topic, key, row, chosen)
            return chosen

    def _is_handled(self, message: ParkedMessage) -> bool:
        return Identity(message.topic, message.key, message.id) in self._handled

    def _add(self, row: _Row, message: ParkedMessage) -> Kept:
        stored = next((each for each in row.messages.values() if message.is_repetition_of(each)), None)
        if stored is None:
            # Through the text that other stores keep, so that tests see what that changes.
            kept = None if message.message is None else decode(encode(message.message))
            added = replace(message, message=kept, position=position_among(row.messages.values(), message))
            row.messages[added.order] = added
        elif stored.message is None and message.message is not None:
            raise NotStorable(ONLY_PLACE)
        return Kept.ASIDE

    def _claimed(self, claim: Claim) -> _Row:
        row = self._rows.get((claim.topic, claim.key))
        if row is None or row.token != claim.token:
            raise ClaimLost
        return row

    def _remove(self, topic: str, key: str, row: _Row, messages: Sequence[ParkedMessage]) -> None:
        for each in messages:
            row.messages.pop(each.order, None)
        if not row.messages:
            del self._rows[topic, key]


_start = attrgetter("start")


@dataclass(slots=True)
class _Progress:
    last: int | None = None
    gaps: list[range] = field(default_factory=list)

    def step(self, sequence: int) -> Step:
        at = bisect_right(self.gaps, sequence, key=_start) - 1
        gap = self.gaps[at] if at >= 0 and sequence in self.gaps[at] else None
        return advance(self.last, gap, sequence)

    def take(self, step: Step) -> None:
        self.last = step.last
        at = bisect_right(self.gaps, step.last if step.closed is None else step.closed.start, key=_start)
        if step.closed is None:
            self.gaps[at:at] = step.opened
        else:
            self.gaps[at - 1 : at] = step.opened


class MemoryStore(MemoryParking):
    """Keeps records until the process ends. For tests, or for effects that do not outlive the process either."""

    def __init__(self) -> None:
        super().__init__({}, Turn())
        self._progress: dict[tuple[str, str, str], _Progress] = {}

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[Arrival]:
        """See `Store.once`."""
        identity = Identity.of(message)
        async with self._turn.take():
            if identity in self._handled:
                yield Arrival(first=False)
                return
            if message.sequence is None:
                yield Arrival(first=True)
            else:
                place = (entity_of(message, entity), message.key, message.topic)
                progress = self._progress.get(place, _Progress())
                step = progress.step(message.sequence)
                yield step.arrival
                progress.take(step)
                self._progress[place] = progress
            self._handled[identity] = datetime.now(UTC)

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`."""
        return [
            Gap(entity, gap.start, gap.stop - 1, key, topic)
            for (entity, key, topic), progress in sorted(self._progress.items(), key=lambda item: item[0])
            for gap in progress.gaps
        ]

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        limit = datetime.now(UTC) - older_than
        old = [identity for identity, at in self._handled.items() if at < limit]
        for identity in old:
            del self._handled[identity]
        return len(old)
