"""What `check` has read of a deployment; told apart from why something could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class Why(StrEnum):
    """Why there is no fact."""

    MISSING = "missing"  # the service says that it is not there, or is closed
    FORBIDDEN = "forbidden"  # it may be there, but these rights do not suffice to see it
    REFUSED = "refused"  # the credentials themselves were not accepted
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact that could not be read.

    Attributes:
        why: Of what kind.
        said: What the service or the SDK said.
    """

    why: Why
    said: str


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container's definition.

    Attributes:
        partition_key: Its paths, in their order; several for a hierarchical key.
        default_ttl: Seconds; -1 for on without a default, None for off.
    """

    partition_key: tuple[str, ...]
    default_ttl: int | None


@dataclass(frozen=True, slots=True)
class LockFacts:
    """A lock under which a host creates its leases: the id of its document, and its age in seconds."""

    id: str
    age_s: float


@dataclass(frozen=True, slots=True)
class CosmosFacts:
    """The database, and its containers by the setting that names each. Without a database there are none.

    Attributes:
        locks: The locks in the lease container; none where it is not there.
    """

    database: Gap | None
    containers: Mapping[str, ContainerFacts | Gap]
    locks: list[LockFacts] | Gap = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic's definition; None where the service does not tell a property."""

    status: str | None
    duplicate_detection: bool | None
    window: timedelta | None
    partitioned: bool | None
    ttl: timedelta | None


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """A subscription's definition; None where the service does not tell a property."""

    name: str
    status: str | None
    requires_session: bool | None
    dead_letters_expired: bool | None
    ttl: timedelta | None


@dataclass(frozen=True, slots=True)
class ServiceBusFacts:
    """What the management endpoint tells, and what opening a link to the topic tells.

    Attributes:
        sending: The largest batch in bytes that the topic's link takes.
    """

    topic: TopicFacts | Gap
    subscriptions: list[SubscriptionFacts] | Gap
    sending: int | Gap
