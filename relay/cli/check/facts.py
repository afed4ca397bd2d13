"""What `check` reads of a deployment: facts, and gaps where a fact could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class Why(StrEnum):
    """Why a fact could not be read."""

    MISSING = "missing"  # the service reports that it does not exist, or is disabled
    FORBIDDEN = "forbidden"  # it may exist, but these rights are not enough to see it
    REFUSED = "refused"  # the credentials were not accepted
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read.

    Attributes:
        why: The kind of failure.
        said: The message of the service or the SDK.
    """

    why: Why
    said: str


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container's definition.

    Attributes:
        partition_key: Its paths in order; several for a hierarchical key.
        default_ttl: Seconds; -1 for on without a default, None for off.
    """

    partition_key: tuple[str, ...]
    default_ttl: int | None


@dataclass(frozen=True, slots=True)
class LockFacts:
    """The lock that a host holds while it creates its leases: its document id, and its age in seconds."""

    id: str
    age_s: float


@dataclass(frozen=True, slots=True)
class OverlapFacts:
    """Two leases of the relay that cover some of the same partition keys: their document ids.

    Attributes:
        wider: The lease that begins first, such as that of a physical partition that was split.
        within: The lease that begins within its range.
    """

    wider: str
    within: str


@dataclass(frozen=True, slots=True)
class CosmosFacts:
    """The database, and its containers by the setting that names each; none if the database cannot be read.

    Attributes:
        locks: The locks in the lease container; none if the container does not exist.
        overlaps: The relay's leases that overlap; none if the leases cannot be read.
    """

    database: Gap | None
    containers: Mapping[str, ContainerFacts | Gap]
    locks: list[LockFacts] | Gap = field(default_factory=list)
    overlaps: list[OverlapFacts] = field(default_factory=list)


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
