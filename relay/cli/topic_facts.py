"""What `check` reads of a topic: facts, and gaps where a fact could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from relay.findings import Gap


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic's definition; None for a property that the service does not report."""

    status: str | None
    duplicate_detection: bool | None
    window: timedelta | None
    partitioned: bool | None
    ttl: timedelta | None


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription's definition; None for a property that the service does not report."""

    name: str
    status: str | None
    requires_session: bool | None
    dead_letters_expired: bool | None
    ttl: timedelta | None


@dataclass(frozen=True, slots=True)
class ServiceBusFacts:
    """What the management endpoint reports, and whether a link to the topic opens.

    Attributes:
        sending: The largest batch in bytes that the link to the topic takes.
    """

    topic: TopicFacts | Gap
    subscriptions: list[SubscriptionFacts] | Gap
    sending: int | Gap
