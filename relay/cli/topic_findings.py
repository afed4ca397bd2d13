"""Checks the topic and its subscriptions against what the relay's guarantees require."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from relay.cli.topic_facts import ServiceBusFacts, SubscriptionFacts, TopicFacts
from relay.findings import Finding, Gap, Level, Why
from relay.times import format_duration

# A link to a Standard topic takes 256 KB, one to a Premium topic 1 MB and more.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
_STANDARD_BATCH_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the topic must provide.

    Attributes:
        min_window: The shortest acceptable duplicate detection window.
        configured_window: The window that the relay assumes: RELAY_DUPLICATE_WINDOW_S.
        min_ttl: The shortest time to live of messages that is no warning.
    """

    min_window: timedelta
    configured_window: timedelta
    min_ttl: timedelta


def check_servicebus(facts: ServiceBusFacts, topic: str, required: Requirements) -> Iterator[Finding]:
    """The findings about the link to the topic, the topic's properties, and its subscriptions."""
    subject = f"SERVICEBUS_TOPIC '{topic}'"
    yield _sending(subject, facts.sending)
    if isinstance(facts.topic, Gap):
        if facts.topic.why is Why.MISSING and not isinstance(facts.sending, Gap):
            yield _other_namespace(subject)
        else:
            yield _administration_gap(subject, facts.topic)
        return
    yield from _topic(subject, facts.topic, required, None if isinstance(facts.sending, Gap) else facts.sending)
    if isinstance(facts.subscriptions, Gap):
        yield _administration_gap(f"the subscriptions of {subject}", facts.subscriptions)
        return
    if not facts.subscriptions:
        yield Finding(
            Level.WARNING,
            f"{subject} has no subscription: Service Bus discards what is published",
            "Create a subscription that requires sessions for each consumer.",
        )
    for subscription in facts.subscriptions:
        yield from _subscription(subscription, required)


def _sending(subject: str, sending: int | Gap) -> Finding:
    if not isinstance(sending, Gap):
        return Finding(Level.OK, f"{subject} can be sent to, in batches of at most {sending} bytes")
    unreachable = sending.why is Why.UNREACHABLE
    return Finding(
        Level.ERROR,
        f"{subject} cannot be sent to: {sending.said}",
        "Check SERVICEBUS, and the network between here and there." if unreachable else None,
        unavailable=unreachable or sending.why is Why.REFUSED,
    )


def _other_namespace(subject: str) -> Finding:
    return Finding(
        Level.UNKNOWN,
        f"the properties of {subject} cannot be read: the topic can be sent to, but the management endpoint does "
        "not have it",
        "Set --servicebus-admin to the management endpoint of this namespace.",
    )


def _administration_gap(subject: str, gap: Gap) -> Finding:
    if gap.why is Why.MISSING:
        return Finding(Level.ERROR, f"{subject} does not exist", "Create the topic, or correct SERVICEBUS_TOPIC.")
    if gap.why is Why.FORBIDDEN:
        return Finding(
            Level.UNKNOWN,
            f"the properties of {subject} cannot be read with these rights: {gap.said}",
            "Run check with a connection string that has the Manage right, or with an identity that has the role "
            "'Azure Service Bus Data Owner'. The app itself needs neither.",
        )
    return Finding(
        Level.UNKNOWN,
        f"the properties of {subject} cannot be read: no management endpoint answers: {gap.said}",
        "Set --servicebus-admin, or SERVICEBUS_ADMIN, to the address of the management endpoint.",
    )


def _topic(
    subject: str, topic: TopicFacts, required: Requirements, largest_batch: int | None
) -> Iterator[Finding]:
    yield _status(subject, topic.status, Level.ERROR)
    yield _duplicate_detection(subject, topic, required)
    yield _partitioning(subject, topic.partitioned, largest_batch)
    yield from _ttl(subject, topic.ttl, required)


def _not_reported(subject: str, question: str) -> Finding:
    return Finding(
        Level.UNKNOWN,
        f"{subject}: the management endpoint does not report {question}",
        "Look it up in the Azure portal.",
    )


def _partitioning(subject: str, partitioned: bool | None, largest_batch: int | None) -> Finding:
    """Partitioned or not, the first copy of each event arrives in order; ids need more care where it is not.

    A topic of the Premium tier is partitioned only where its namespace is, so there this is no warning.
    https://learn.microsoft.com/azure/service-bus-messaging/service-bus-partitioning
    """
    if partitioned is None:
        return _not_reported(subject, "whether it is partitioned")
    if partitioned:
        return Finding(Level.OK, f"{subject} is partitioned: ids must be unique only within a partition key")
    what = (
        f"{subject} is not partitioned, so duplicates are detected by message id alone: of two events with the "
        "same id under two partition keys, the second is dropped"
    )
    if largest_batch is not None and largest_batch > _STANDARD_BATCH_BYTES:
        return Finding(Level.OK, f"{what}; ids must be unique across partition keys, as UUIDs are")
    return Finding(
        Level.WARNING,
        what,
        "Make sure that ids are unique across partition keys (UUIDs are), or create a partitioned topic.",
    )


def _duplicate_detection(subject: str, topic: TopicFacts, required: Requirements) -> Finding:
    if topic.duplicate_detection is None:
        return _not_reported(subject, "whether it detects duplicates")
    if not topic.duplicate_detection:
        return Finding(
            Level.ERROR,
            f"{subject} does not detect duplicates: an event that is sent again is delivered again",
            "Create another topic with duplicate detection. It cannot be turned on later.",
        )
    if topic.window is None:
        return _not_reported(subject, "its duplicate detection window")
    window, minimum = format_duration(topic.window), format_duration(required.min_window)
    if topic.window < required.min_window:
        return Finding(
            Level.ERROR,
            f"{subject} detects duplicates within {window} only, not within {minimum}",
            f"Set its duplicate detection history time window to at least {minimum}: longer than any outage "
            "during which the app is restarted.",
        )
    if topic.window < required.configured_window:
        return Finding(
            Level.ERROR,
            f"{subject} detects duplicates within {window}, but RELAY_DUPLICATE_WINDOW_S is "
            f"{format_duration(required.configured_window)}: old events may be delivered twice",
            f"Set RELAY_DUPLICATE_WINDOW_S to {topic.window.total_seconds():g}.",
        )
    return Finding(Level.OK, f"{subject} detects duplicates within {window}")


def _subscription(subscription: SubscriptionFacts, required: Requirements) -> Iterator[Finding]:
    subject = f"subscription '{subscription.name}'"
    yield _status(subject, subscription.status, Level.WARNING)
    yield _sessions(subject, subscription.requires_session)
    yield _expiry(subject, subscription.dead_letters_expired)
    yield from _ttl(subject, subscription.ttl, required)


def _sessions(subject: str, required: bool | None) -> Finding:
    if required is None:
        return _not_reported(subject, "whether it requires sessions")
    if required:
        return Finding(Level.OK, f"{subject} requires sessions")
    return Finding(
        Level.ERROR,
        f"{subject} does not require sessions: its consumers receive events out of order",
        "Delete it and create it again with sessions. They cannot be turned on later.",
    )


def _expiry(subject: str, dead_letters: bool | None) -> Finding:
    if dead_letters is None:
        return _not_reported(subject, "whether it dead-letters expired messages")
    if dead_letters:
        return Finding(Level.OK, f"{subject} dead-letters expired messages")
    return Finding(
        Level.ERROR,
        f"{subject} drops expired messages: events that a consumer is too late for are lost without a trace",
        "Turn on dead-lettering on message expiration.",
    )


def _status(subject: str, status: str | None, otherwise: Level) -> Finding:
    if status is None:
        return _not_reported(subject, "its status")
    if status == "Active":
        return Finding(Level.OK, f"{subject} is active")
    return Finding(otherwise, f"{subject} is {status}", "Set its status to Active.")


def _ttl(subject: str, ttl: timedelta | None, required: Requirements) -> Iterator[Finding]:
    if ttl is not None and ttl < required.min_ttl:
        yield Finding(
            Level.WARNING,
            f"{subject} keeps messages for {format_duration(ttl)}: a consumer that is down for longer misses them",
            f"Set its default message time to live to at least {format_duration(required.min_ttl)}.",
        )
