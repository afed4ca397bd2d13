"""What is counted now and then: quarantine, subscriptions, dead letters, and the hosts' attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.console.model import DeadLetterGroup, QuarantineGroup, Subscription
from relay.console.parts import Parts
from relay.console.ports import Attempt, Hosts, Topic
from relay.console.quarantined import Quarantined
from relay.quarantine.items import Items

_DEAD_LETTERS = "dead letters of "


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
        self._dead_letters: Mapping[str, Sequence[DeadLetterGroup]] = {}

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
        dead_letters = {}
        for subscription in self.subscriptions:
            name = subscription.name
            dead_letters[name] = self._dead_letters.get(name, ())
            async with self._parts.reading(_DEAD_LETTERS + name):
                dead_letters[name] = await topic.dead_letters(name) if subscription.dead_lettered else ()
        self._dead_letters = dead_letters
        self._parts.forget(_DEAD_LETTERS, {_DEAD_LETTERS + name for name in dead_letters})
