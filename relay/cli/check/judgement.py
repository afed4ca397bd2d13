"""Judges what was read of a deployment: each fact on its own, with what to do where it is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from relay.cli.check.facts import (
    ContainerFacts,
    CosmosFacts,
    Gap,
    LockFacts,
    ServiceBusFacts,
    SubscriptionFacts,
    TopicFacts,
    Why,
)
from relay.cli.times import format_duration

ACTIVE = "Active"

# A link to a Standard topic takes 256 KB, one to a Premium topic 1 MB and more.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
_STANDARD_BATCH_BYTES = 262_144

# The change feed processor holds its lock for 30 s at most. Clocks may differ, and expiry may lag.
_STALE_LOCK_S = 60.0

PARTITION_KEYS = {
    "COSMOS_CONTAINER": ("/partitionKey",),
    "COSMOS_LEASE_CONTAINER": ("/id",),
    "COSMOS_QUARANTINE_CONTAINER": ("/partitionKey",),
}


class Level(StrEnum):
    """How a finding weighs."""

    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "unknown"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        level: How it weighs.
        what: The setting and the thing it names, and what was found.
        remedy: What to do; None where nothing has to be done.
        unavailable: A service could not be reached, or refused.
    """

    level: Level
    what: str
    remedy: str | None = None
    unavailable: bool = False


@dataclass(frozen=True, slots=True)
class Demands:
    """What is asked of the topic.

    Attributes:
        window: The least duplicate detection window.
        relied_on: The window that the relay reckons with: RELAY_DUPLICATE_WINDOW_S.
        ttl: How long, at the least, messages should live.
    """

    window: timedelta
    relied_on: timedelta
    ttl: timedelta


def judge_cosmos(facts: CosmosFacts, database: str, containers: dict[str, str]) -> Iterator[Finding]:
    """The database and its containers; `containers` are their names by setting."""
    subject = f"COSMOS_DATABASE '{database}'"
    if facts.database is not None:
        yield _cosmos_gap(subject, facts.database, "Create the database, or correct COSMOS_DATABASE.")
    elif facts.containers:
        yield Finding(Level.OK, f"{subject} exists")
    for setting, found in facts.containers.items():
        subject = f"{setting} '{containers[setting]}'"
        if isinstance(found, Gap):
            path = PARTITION_KEYS[setting][0]
            yield _cosmos_gap(
                subject, found, f"Create the container with the partition key {path}, or correct {setting}."
            )
        else:
            yield _partition_key(subject, found, PARTITION_KEYS[setting])
            yield _TTL_JUDGES[setting](subject, found.default_ttl)
    yield from _locks(f"COSMOS_LEASE_CONTAINER '{containers['COSMOS_LEASE_CONTAINER']}'", facts.locks)


def _cosmos_gap(subject: str, gap: Gap, create: str) -> Finding:
    match gap.why:
        case Why.MISSING:
            return Finding(Level.ERROR, f"{subject} does not exist", create)
        case Why.FORBIDDEN:
            return Finding(
                Level.UNKNOWN,
                f"{subject} cannot be read with these rights: {gap.said}",
                "Run check with an identity that has the role 'Cosmos DB Built-in Data Contributor', which the "
                "app needs too, from a network that the account's firewall lets in.",
            )
        case Why.REFUSED:
            return Finding(
                Level.ERROR,
                f"the Cosmos DB account refused the credentials: {gap.said}",
                "Check COSMOS, or COSMOS__credential and COSMOS__clientId.",
                unavailable=True,
            )
    return Finding(
        Level.ERROR,
        f"the Cosmos DB account cannot be reached: {gap.said}",
        "Check the address in COSMOS or COSMOS__accountEndpoint, and the way through the network.",
        unavailable=True,
    )


def _partition_key(subject: str, facts: ContainerFacts, expected: tuple[str, ...]) -> Finding:
    found = ", ".join(facts.partition_key) or "none"
    if facts.partition_key == expected:
        return Finding(Level.OK, f"{subject} has the partition key {found}")
    return Finding(
        Level.ERROR,
        f"{subject} has the partition key {found}, not {', '.join(expected)}",
        "A container's partition key cannot be changed: create another container, and move what is in this one.",
    )


def _data_ttl(subject: str, default_ttl: int | None) -> Finding:
    if default_ttl == -1:
        return Finding(Level.OK, f"{subject} has time to live on, without a default")
    if default_ttl is None:
        return Finding(
            Level.WARNING,
            f"{subject} has time to live off: the ttl of events is ignored, and they stay for ever",
            "Turn it on without a default (defaultTtl: -1).",
        )
    return Finding(
        Level.ERROR,
        f"{subject} has a default time to live of {default_ttl} s: business documents are deleted after it",
        "Set it on without a default (defaultTtl: -1).",
    )


def _lease_ttl(subject: str, default_ttl: int | None) -> Finding:
    """Leases have no `ttl`, but the lock under which a host creates them has 30 s.

    Azure/azure-cosmos-dotnet-v3, ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseStoreCosmos.cs; the
    trigger's own creation of the container sets -1.
    """
    if default_ttl == -1:
        return Finding(Level.OK, f"{subject} has time to live on, without a default: leases stay, locks expire")
    remedy = "Turn it on without a default (defaultTtl: -1)."
    if default_ttl is None:
        return Finding(
            Level.ERROR,
            f"{subject} has time to live off: the lock of a host that is killed at its start never expires, and "
            "every later host waits for it for ever, without a line of log",
            remedy,
        )
    return Finding(
        Level.ERROR,
        f"{subject} has a default time to live of {default_ttl} s: a lease that expires takes its checkpoint "
        "along, and its whole feed is relayed again",
        remedy,
    )


def _locks(subject: str, locks: list[LockFacts] | Gap) -> Iterator[Finding]:
    if isinstance(locks, Gap):
        yield _cosmos_gap(f"the locks in {subject}", locks, "Create the container.")
        return
    for lock in locks:
        if lock.age_s > _STALE_LOCK_S:
            yield Finding(
                Level.ERROR,
                f"{subject} has the lock {lock.id!r}, {lock.age_s:.0f} s old: the host that took it was killed at "
                "its start, and while it is there every other host waits for it, without a line of log",
                "Delete that document, then turn time to live on without a default (defaultTtl: -1).",
            )


def _quarantine_ttl(subject: str, default_ttl: int | None) -> Finding:
    if default_ttl is None:
        return Finding(Level.OK, f"{subject} has time to live off: what is in it stays")
    if default_ttl == -1:
        return Finding(
            Level.WARNING,
            f"{subject} has time to live on, without a default: nothing expires, unless somebody adds a ttl",
            "Turn time to live off.",
        )
    return Finding(
        Level.ERROR,
        f"{subject} has a default time to live of {default_ttl} s: quarantined events are lost after it",
        "Turn time to live off.",
    )


_TTL_JUDGES = {
    "COSMOS_CONTAINER": _data_ttl,
    "COSMOS_LEASE_CONTAINER": _lease_ttl,
    "COSMOS_QUARANTINE_CONTAINER": _quarantine_ttl,
}


def judge_servicebus(facts: ServiceBusFacts, topic: str, demands: Demands) -> Iterator[Finding]:
    """The link to the topic, the topic's properties, its subscriptions."""
    subject = f"SERVICEBUS_TOPIC '{topic}'"
    yield _sending(subject, facts.sending)
    if isinstance(facts.topic, Gap):
        if facts.topic.why is Why.MISSING and not isinstance(facts.sending, Gap):
            yield _other_namespace(subject)
        else:
            yield _administration_gap(subject, facts.topic)
        return
    yield from _topic(subject, facts.topic, demands, None if isinstance(facts.sending, Gap) else facts.sending)
    if isinstance(facts.subscriptions, Gap):
        yield _administration_gap(f"the subscriptions of {subject}", facts.subscriptions)
        return
    if not facts.subscriptions:
        yield Finding(
            Level.WARNING,
            f"{subject} has no subscription: what is published goes nowhere",
            "Create a subscription, with sessions, for each consumer.",
        )
    for subscription in facts.subscriptions:
        yield from _subscription(subscription, demands)


def _sending(subject: str, sending: int | Gap) -> Finding:
    if not isinstance(sending, Gap):
        return Finding(Level.OK, f"{subject} can be sent to, in batches of {sending} bytes at most")
    return Finding(
        Level.ERROR,
        f"{subject} cannot be sent to: {sending.said}",
        None if sending.why is not Why.UNREACHABLE else "Check SERVICEBUS, and the way through the network.",
        unavailable=sending.why in (Why.REFUSED, Why.UNREACHABLE),
    )


def _other_namespace(subject: str) -> Finding:
    return Finding(
        Level.UNKNOWN,
        f"the properties of {subject} cannot be read: the management endpoint does not know the topic, though it "
        "can be sent to",
        "Set --servicebus-admin to the management endpoint of this namespace.",
    )


def _administration_gap(subject: str, gap: Gap) -> Finding:
    if gap.why is Why.MISSING:
        return Finding(Level.ERROR, f"{subject} does not exist", "Create the topic, or correct SERVICEBUS_TOPIC.")
    if gap.why is Why.FORBIDDEN:
        return Finding(
            Level.UNKNOWN,
            f"the properties of {subject} cannot be read with these rights: {gap.said}",
            "Run check with a connection string that has the Manage right, or an identity with the role "
            "'Azure Service Bus Data Owner'. The app itself needs neither.",
        )
    return Finding(
        Level.UNKNOWN,
        f"the properties of {subject} cannot be read: no management endpoint answers: {gap.said}",
        "Set --servicebus-admin, or SERVICEBUS_ADMIN, to the address of the management endpoint.",
    )


def _topic(subject: str, topic: TopicFacts, demands: Demands, largest_batch: int | None) -> Iterator[Finding]:
    yield _status(subject, topic.status, Level.ERROR)
    yield _duplicate_detection(subject, topic, demands)
    yield _partitioning(subject, topic.partitioned, largest_batch)
    yield from _ttl(subject, topic.ttl, demands)


def _untold(subject: str, question: str) -> Finding:
    return Finding(
        Level.UNKNOWN,
        f"{subject}: the management endpoint does not tell {question}",
        "Look at it in the portal.",
    )


def _partitioning(subject: str, partitioned: bool | None, largest_batch: int | None) -> Finding:
    """Partitioned or not, the first copy of each event arrives in order; ids need more care where it is not.

    A topic of the Premium tier is partitioned only where its namespace is, so there this is no warning.
    https://learn.microsoft.com/azure/service-bus-messaging/service-bus-partitioning
    """
    if partitioned is None:
        return _untold(subject, "whether it is partitioned")
    if partitioned:
        return Finding(
            Level.OK, f"{subject} is partitioned: an id needs to be unique within its partition key only"
        )
    what = (
        f"{subject} is not partitioned, so duplicates are detected by message id alone: of two events with the "
        "same id under two partition keys the second is dropped"
    )
    if largest_batch is not None and largest_batch > _STANDARD_BATCH_BYTES:
        return Finding(Level.OK, f"{what}; ids have to be unique across partition keys, as UUIDs are")
    return Finding(
        Level.WARNING,
        what,
        "Make sure that ids are unique across partition keys (UUIDs are), or create a partitioned topic.",
    )


def _duplicate_detection(subject: str, topic: TopicFacts, demands: Demands) -> Finding:
    if topic.duplicate_detection is None:
        return _untold(subject, "whether it detects duplicates")
    if not topic.duplicate_detection:
        return Finding(
            Level.ERROR,
            f"{subject} does not detect duplicates: what is sent again arrives again",
            "Create another topic with duplicate detection: it can be set only when a topic is created.",
        )
    wanted = format_duration(demands.window)
    if topic.window is None:
        return _untold(subject, "its duplicate detection window")
    window = format_duration(topic.window)
    if topic.window < demands.window:
        return Finding(
            Level.ERROR,
            f"{subject} detects duplicates within {window} only, not within {wanted}",
            f"Set its duplicate detection history time window to {wanted} at least: longer than an outage may "
            "last in which the app is also restarted.",
        )
    if topic.window < demands.relied_on:
        return Finding(
            Level.ERROR,
            f"{subject} detects duplicates within {window}, but RELAY_DUPLICATE_WINDOW_S says "
            f"{format_duration(demands.relied_on)}: old events may be sent twice",
            f"Set RELAY_DUPLICATE_WINDOW_S to {topic.window.total_seconds():g}.",
        )
    return Finding(Level.OK, f"{subject} detects duplicates within {window}")


def _subscription(subscription: SubscriptionFacts, demands: Demands) -> Iterator[Finding]:
    subject = f"subscription '{subscription.name}'"
    yield _status(subject, subscription.status, Level.WARNING)
    yield _sessions(subject, subscription.requires_session)
    yield _expiry(subject, subscription.dead_letters_expired)
    yield from _ttl(subject, subscription.ttl, demands)


def _sessions(subject: str, required: bool | None) -> Finding:
    if required is None:
        return _untold(subject, "whether it requires sessions")
    if required:
        return Finding(Level.OK, f"{subject} requires sessions")
    return Finding(
        Level.ERROR,
        f"{subject} does not require sessions: its consumers receive events out of order",
        "Create it again with sessions: that can be set only when a subscription is created.",
    )


def _expiry(subject: str, dead_letters: bool | None) -> Finding:
    if dead_letters is None:
        return _untold(subject, "what it does with expired messages")
    if dead_letters:
        return Finding(Level.OK, f"{subject} dead-letters what expires")
    return Finding(
        Level.ERROR,
        f"{subject} drops what expires: events its consumers were too late for are lost without a trace",
        "Turn on dead-lettering on message expiration.",
    )


def _status(subject: str, status: str | None, otherwise: Level) -> Finding:
    if status is None:
        return _untold(subject, "its status")
    if status == ACTIVE:
        return Finding(Level.OK, f"{subject} is active")
    return Finding(otherwise, f"{subject} is {status}", "Set its status to Active.")


def _ttl(subject: str, ttl: timedelta | None, demands: Demands) -> Iterator[Finding]:
    if ttl is not None and ttl < demands.ttl:
        yield Finding(
            Level.WARNING,
            f"{subject} keeps messages for {format_duration(ttl)}: a consumer that is away for longer misses them",
            f"Set its default message time to live to {format_duration(demands.ttl)} at least.",
        )
