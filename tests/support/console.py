"""A console's topic and hosts in memory, for tests of what is built on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from outbox_relay.operator.console.model import DeadLetterGroup, Delivery, Subscription
from outbox_relay.operator.console.ports import Attempt
from relay.backends.findings import Finding
from relay.core.errors import ServiceError


@dataclass
class InMemoryTopic:
    """A topic. Attributes as the methods of ports.Topic; `fails` is what they raise, as long as it is set."""

    counts: list[Subscription] = field(default_factory=list)
    letters: dict[str, list[DeadLetterGroup]] = field(default_factory=dict)
    arrivals: dict[str, list[Delivery]] = field(default_factory=dict)
    blocked: list[Finding] = field(default_factory=list)
    fails: str | None = None
    closed: bool = False

    async def subscriptions(self) -> Sequence[Subscription]:
        self._answer()
        return self.counts

    async def obstacles(self) -> Sequence[Finding]:
        self._answer()
        return self.blocked

    async def dead_letters(self, subscription: str, /) -> Sequence[DeadLetterGroup]:
        self._answer()
        return self.letters.get(subscription, [])

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        self._answer()
        return [each for each in self.arrivals.get(partition_key, []) if each.message_id in ids]

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

    findings: Sequence[Finding] = ()
    ended: dict[str, float] = field(default_factory=dict)

    async def attempts(self) -> Mapping[str, Attempt]:
        return self.retries

    async def obstacles(self) -> Sequence[Finding]:
        return self.findings

    def ended_at(self, owner: str, /) -> float | None:
        return self.ended.get(owner)

    async def close(self) -> None:
        self.closed = True
