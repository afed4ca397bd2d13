"""What is counted now and then: quarantine, subscriptions, dead letters, and the hosts' attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.console.model import DeadLetterGroup, QuarantineGroup, Subscription
from relay.console.parts import Parts
from relay.console.ports import Attempt, Hosts, Topic
from relay.console.quarantined import Quarantined
from relay.quarantine.items import Items

_DEAD_LETTERS = "dead letters of "

# Dead letters are peeked with their bodies: while their number stays the same, once in this many rounds.
_ROUNDS = 10


class Counts:
    """The counts as they were read last.

    Attributes:
        records: Records in quarantine; `groups` are those of each reason.
        parked: Parked keys.
        subscriptions: By name.
        attempts: The current attempt of each partition that is retried.
    """

    def __init__(
        self, quarantine: Quarantined, items: Items, topic: Topic | None, hosts: Hosts | None, parts: Parts
    ) -> None:
        self._quarantine = quarantine
        self._items = items
        self._topic = topic
        self._hosts = hosts
        self._parts = parts
        self.records = self.parked = 0
        self.groups: Sequence[QuarantineGroup] = ()
        self.subscriptions: Sequence[Subscription] = ()
        self.attempts: Mapping[str, Attempt] = {}
        self._dead_letters: dict[str, Sequence[DeadLetterGroup]] = {}
        # How many there were in each subscription when they were peeked.
        self._peeked: dict[str, int] = {}
        self._round = 0

    @property
    def dead_letters(self) -> list[DeadLetterGroup]:
        """Of all subscriptions."""
        return [group for groups in self._dead_letters.values() for group in groups]

    async def read(self) -> None:
        """Read everything once."""
        async with self._parts.reading("quarantine by reason"):
            self.records, self.groups = await self._quarantine.groups()
            self.parked = len((await self._items.holds()).parked)
        if self._topic is not None:
            await self._read_topic(self._topic)
        if self._hosts is not None:
            async with self._parts.reading("hosts"):
                self.attempts = await self._hosts.attempts()

    async def _read_topic(self, topic: Topic) -> None:
        async with self._parts.reading("subscriptions"):
            self.subscriptions = await topic.subscriptions()
        self._round += 1
        if self._round % _ROUNDS == 0:
            self._peeked.clear()
        counts = {subscription.name: subscription.dead_lettered for subscription in self.subscriptions}
        for name, count in counts.items():
            if count != self._peeked.get(name):
                async with self._parts.reading(_DEAD_LETTERS + name):
                    self._dead_letters[name] = await topic.dead_letters(name) if count else ()
                    self._peeked[name] = count
        self._dead_letters = {name: groups for name, groups in self._dead_letters.items() if name in counts}
        self._peeked = {name: count for name, count in self._peeked.items() if name in counts}
        self._parts.forget(_DEAD_LETTERS, {_DEAD_LETTERS + name for name in counts})
