"""Periodic counts: quarantine, subscriptions, dead letters, and the hosts' attempts."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from outbox_relay.operator.console.backlog import Removals
from outbox_relay.operator.console.freshness import Freshness, Part
from outbox_relay.operator.console.model import (
    EXAMPLES,
    DeadLetterGroup,
    QuarantineGroup,
    QuarantineRecord,
    Subscription,
    by_reason,
)
from outbox_relay.operator.console.ports import Attempt, Parts, Sources
from relay.backends.findings import Finding
from relay.backends.outbox import key_name
from relay.core.events import Reason
from relay.quarantine.items import Filter

_DEAD_LETTERS = "dead letters of "

# Maximum number of records that are read with their reasons; beyond it, each reason is counted separately.
_RECORDS = 1000

# Maximum number of parked keys that are shown by name.
_PARKED_KEYS = 20

# Records, and dead letters with their bodies, are read when their number has changed, and after this many seconds.
_AGAIN_S = 30.0

# Seconds between looks at what stops the whole relay.
_OBSTACLES_S = 10.0


class Counts:
    """The counts as they were read last.

    Attributes:
        records: Records in quarantine; `groups` are those of each reason, the most frequent first.
        parked: Number of parked keys; `parked_keys` are the first of them by name.
        subscriptions: By name.
        attempts: The current attempt of each partition that is retried or withheld.
        removals: The records that operators have removed from quarantine.
    """

    def __init__(self, sources: Sources, parts: Parts, freshness: Freshness, clock: Callable[[], float]) -> None:
        self._sources = sources
        self._parts = parts
        self._freshness = freshness
        self._clock = clock
        self.records: int | None = None
        self.parked: int | None = None
        self.parked_keys: Sequence[str] = ()
        self.groups: Sequence[QuarantineGroup] = ()
        self.subscriptions: Sequence[Subscription] = ()
        self.attempts: Mapping[str, Attempt] = {}
        self._of_hosts: Sequence[Finding] = ()
        self._of_topic: Sequence[Finding] = ()
        self._of_outbox: Sequence[Finding] = ()
        self._obstacles_at = float("-inf")
        self.removals = Removals(sources.items)
        self._removals_read = _Reading()
        self._grouped = _Reading()
        # The records of each key, while they are few enough to be read.
        self._of_keys: Mapping[str, Sequence[str]] | None = {}
        self._parked: Collection[str] = ()
        self._dead_letters: dict[str, Sequence[DeadLetterGroup]] = {}
        self._peeked: dict[str, _Reading] = {}

    @property
    def dead_letters(self) -> list[DeadLetterGroup]:
        return [group for groups in self._dead_letters.values() for group in groups]

    @property
    def obstacles(self) -> Sequence[Finding]:
        """The findings that keep the whole relay from working."""
        return [*self._of_hosts, *self._of_topic, *self._of_outbox]

    def state_of(self, partition_key: str) -> Hashable:
        """Return a value that changes when a key is parked or unparked, or has other records in quarantine."""
        if self._of_keys is None:
            # Of very many, nobody looks for those of one key whenever there is another.
            return int(self._grouped.at // _AGAIN_S), partition_key in self._parked
        return tuple(self._of_keys.get(key_name(partition_key), ())), partition_key in self._parked

    @property
    def readings(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Each reads a part, and may be repeated on its own: one that gets no answer makes nothing else stale."""
        return (
            self._read_quarantine,
            self._read_removals,
            self._read_topic,
            self._read_hosts,
            self._read_obstacles,
        )

    async def _read_hosts(self) -> None:
        if self._sources.hosts is None:
            return
        at, whole = self._clock(), False
        async with self._parts.reading("hosts"):
            self._of_hosts = await self._sources.hosts.obstacles()
            self.attempts = await self._sources.hosts.attempts()
            whole = True
        self._freshness.note(Part.HOSTS, at, whole)

    async def _read_obstacles(self) -> None:
        at, read = self._clock(), 0
        if at - self._obstacles_at < _OBSTACLES_S:
            return
        async with self._parts.reading("status of the topic"):
            self._of_topic = await self._sources.topic.obstacles()
            read += 1
        async with self._parts.reading("locks of the relay"):
            self._of_outbox = await self._sources.outbox.obstacles()
            read += 1
        if read == 2:
            self._obstacles_at = at
        self._freshness.note(Part.OBSTACLES, at, read == 2)

    async def _read_quarantine(self) -> None:
        at, counted, grouped = self._clock(), False, False
        async with self._parts.reading("quarantine by reason"):
            total = await self._sources.items.count(Filter())
            self._parked = (await self._sources.items.holds()).parked
            self.parked, self.records, counted = len(self._parked), total, True
            self.parked_keys = tuple(map(key_name, heapq.nsmallest(_PARKED_KEYS, self._parked)))
            self._freshness.note(Part.QUARANTINE, at, whole=True)
            if self._grouped.is_due(total, at):
                self.groups = await self._read_groups(total)
                self._grouped = _Reading(total, at)
            grouped = True
        if not counted:
            self._freshness.note(Part.QUARANTINE, at, whole=False)
        self._freshness.note(Part.REASONS, self._grouped.at or at, grouped)

    async def _read_removals(self) -> None:
        at, number = self._clock(), -1 if self.records is None else self.records
        if not self._removals_read.is_due(number, at):
            return
        read = False
        async with self._parts.reading("operators' commands"):
            await self.removals.read(at)
            self._removals_read, read = _Reading(number, at), True
        self._freshness.note(Part.REMOVALS, at, read)

    async def _read_groups(self, total: int) -> list[QuarantineGroup]:
        if total <= _RECORDS:
            found = await self._sources.items.summaries(Filter(), _RECORDS)
            of_keys: dict[str, list[str]] = {}
            for each in found:
                of_keys.setdefault(key_name(each.partition_key), []).append(each.id)
            self._of_keys = of_keys
            return [
                QuarantineGroup(reason, len(records), tuple(map(QuarantineRecord.of, records[:EXAMPLES])))
                for reason, records in by_reason(found)
            ]
        self._of_keys = None
        groups = []
        for reason in Reason:
            chosen = Filter(reason=reason)
            if count := await self._sources.items.count(chosen):
                examples = await self._sources.items.summaries(chosen, EXAMPLES)
                groups.append(QuarantineGroup(reason, count, tuple(map(QuarantineRecord.of, examples))))
        return sorted(groups, key=lambda group: (-group.count, group.reason))

    async def _read_topic(self) -> None:
        at, counted = self._clock(), False
        async with self._parts.reading("subscriptions"):
            self.subscriptions = await self._sources.topic.subscriptions()
            counted = True
        self._freshness.note(Part.SUBSCRIPTIONS, at, counted)
        counts = {subscription.name: subscription.dead_lettered for subscription in self.subscriptions}
        peeked = [await self._peek(name, count) for name, count in counts.items()]
        self._dead_letters = {name: groups for name, groups in self._dead_letters.items() if name in counts}
        self._peeked = {name: reading for name, reading in self._peeked.items() if name in counts}
        self._parts.forget(_DEAD_LETTERS, {_DEAD_LETTERS + name for name in counts})
        oldest = min((reading.at for reading in self._peeked.values() if reading.number), default=at)
        self._freshness.note(Part.DEAD_LETTERS, oldest, counted and all(peeked))

    async def _peek(self, subscription: str, count: int) -> bool:
        """Read the dead letters of a subscription, if that is due; returns whether they are known."""
        at = self._clock()
        if not self._peeked.get(subscription, _Reading()).is_due(count, at):
            return True
        async with self._parts.reading(_DEAD_LETTERS + subscription):
            found = await self._sources.topic.dead_letters(subscription) if count else ()
            self._dead_letters[subscription] = found
            self._peeked[subscription] = _Reading(count, at)
            return True
        return False


@dataclass(frozen=True, slots=True)
class _Reading:
    """How many there were when they were read, and when that was."""

    number: int = -1
    at: float = 0.0

    def is_due(self, number: int, now: float) -> bool:
        return number != self.number or now - self.at >= _AGAIN_S
