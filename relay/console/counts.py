"""Periodic counts: quarantine, subscriptions, dead letters, and the hosts' attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.console.model import (
    EXAMPLES,
    DeadLetterGroup,
    QuarantineGroup,
    QuarantineRecord,
    Subscription,
    by_reason,
)
from relay.console.ports import Attempt, Parts, Sources
from relay.events import Reason
from relay.quarantine.items import Filter

_DEAD_LETTERS = "dead letters of "

# Maximum number of records that are read with their reasons; beyond it, each reason is counted separately.
_RECORDS = 1000

# Records, and dead letters with their bodies, are read when their number has changed, and every tenth round.
_ROUNDS = 10


class Counts:
    """The counts as they were read last.

    Attributes:
        records: Records in quarantine; `groups` are those of each reason, the most frequent first.
        parked: Parked keys.
        subscriptions: By name.
        attempts: The current attempt of each partition that is retried.
    """

    def __init__(self, sources: Sources, parts: Parts) -> None:
        self._sources = sources
        self._parts = parts
        self.records = self.parked = 0
        self.groups: Sequence[QuarantineGroup] = ()
        self.subscriptions: Sequence[Subscription] = ()
        self.attempts: Mapping[str, Attempt] = {}
        self._dead_letters: dict[str, Sequence[DeadLetterGroup]] = {}
        # Number of messages in each subscription when they were peeked.
        self._peeked: dict[str, int] = {}
        self._round = 0

    @property
    def dead_letters(self) -> list[DeadLetterGroup]:
        return [group for groups in self._dead_letters.values() for group in groups]

    async def read(self) -> None:
        self._round += 1
        again = self._round % _ROUNDS == 0
        async with self._parts.reading("quarantine by reason"):
            await self._read_quarantine(again)
        await self._read_topic(again)
        if self._sources.hosts is not None:
            async with self._parts.reading("hosts"):
                self.attempts = await self._sources.hosts.attempts()

    async def _read_quarantine(self, again: bool) -> None:
        total = await self._sources.items.count(Filter())
        if again or total != self.records:
            self.groups = await self._read_groups(total)
        self.records = total
        self.parked = len((await self._sources.items.holds()).parked)

    async def _read_groups(self, total: int) -> list[QuarantineGroup]:
        if total <= _RECORDS:
            found = await self._sources.items.summaries(Filter(), _RECORDS)
            return [
                QuarantineGroup(reason, len(records), tuple(map(QuarantineRecord.of, records[:EXAMPLES])))
                for reason, records in by_reason(found)
            ]
        groups = []
        for reason in Reason:
            chosen = Filter(reason=reason)
            if count := await self._sources.items.count(chosen):
                examples = await self._sources.items.summaries(chosen, EXAMPLES)
                groups.append(QuarantineGroup(reason, count, tuple(map(QuarantineRecord.of, examples))))
        return sorted(groups, key=lambda group: (-group.count, group.reason))

    async def _read_topic(self, again: bool) -> None:
        async with self._parts.reading("subscriptions"):
            self.subscriptions = await self._sources.topic.subscriptions()
        if again:
            self._peeked.clear()
        counts = {subscription.name: subscription.dead_lettered for subscription in self.subscriptions}
        for name, count in counts.items():
            if count != self._peeked.get(name):
                async with self._parts.reading(_DEAD_LETTERS + name):
                    self._dead_letters[name] = await self._sources.topic.dead_letters(name) if count else ()
                    self._peeked[name] = count
        self._dead_letters = {name: groups for name, groups in self._dead_letters.items() if name in counts}
        self._peeked = {name: count for name, count in self._peeked.items() if name in counts}
        self._parts.forget(_DEAD_LETTERS, {_DEAD_LETTERS + name for name in counts})
