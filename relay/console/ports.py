"""What the console reads in addition to the outbox (`relay.outbox`): a topic, and the relay itself.

Nothing here writes, locks a session or settles a message. The adapter for Azure is in `servicebus`; a local stack
has further ones, which know more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.console.model import DeadLetterGroup, Delivery, Snapshot, Subscription, Timeline


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a host says of the current attempt of a partition: its number from 1, and why the last one failed."""

    number: int
    error: str | None


class Topic(Protocol):
    """The topic's subscriptions. Every method raises ServiceError where it cannot be read."""

    async def subscriptions(self) -> Sequence[Subscription]:
        """All of them, by name."""

    async def dead_letters(self, subscription: str, /) -> Sequence[DeadLetterGroup]:
        """The dead-lettered messages of a subscription by reason, as far as they were peeked."""

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        """What is known of the messages of a key. A message that is not known of is missing."""

    async def close(self) -> None:
        """Close every connection."""


class Hosts(Protocol):
    """The relay's processes, where they can be asked."""

    async def attempts(self) -> Mapping[str, Attempt]:
        """The current attempt of each partition that is being retried, by the partition's name."""

    async def close(self) -> None:
        """Close every connection."""


class View(Protocol):
    """What the page shows. `observer.Observer` is one; tests have another."""

    @property
    def latest(self) -> Snapshot:
        """The latest snapshot."""

    async def changed(self, number: int, /) -> Snapshot:
        """Wait until there is a snapshot with a number above this one, and return the latest."""

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        """The last events of a key, with their data if `data`."""
