"""Descriptions of queues, topics and subscriptions: their properties, and how they become entities."""

from __future__ import annotations

from typing import Any

from outbox_relay.emulators.servicebus.administration import authorization
from outbox_relay.emulators.servicebus.administration.errors import BadRequest
from outbox_relay.emulators.servicebus.administration.fields import (
    BOOLEAN,
    DURATION,
    ENTITY,
    INTEGER,
    STATUS,
    TEXT,
    Field,
    Values,
)
from outbox_relay.emulators.servicebus.entity_types import (
    DAY_MS,
    MINUTE_MS,
    DuplicateDetection,
    ManagementSettings,
    QueueEntity,
    Receiving,
    Sending,
    Status,
    SubscriptionEntity,
    TopicEntity,
)
from outbox_relay.emulators.servicebus.filters import Rule
from outbox_relay.emulators.servicebus.topic import Queue, Subscription, Topic

_KIB = 1024
_STANDARD_MESSAGE_KIB, _PREMIUM_MESSAGE_KIB = 256, 1024

_LOCK = Field("LockDuration", DURATION, MINUTE_MS, low=5_000, high=5 * MINUTE_MS)
_SIZE = Field("MaxSizeInMegabytes", INTEGER, 1024, low=1024, high=81_920)
_DUPLICATES = Field("RequiresDuplicateDetection", BOOLEAN, False, fixed=True)
_SESSION = Field("RequiresSession", BOOLEAN, False, fixed=True)
_TTL = Field("DefaultMessageTimeToLive", DURATION, low=1_000)
_DEAD = Field("DeadLetteringOnMessageExpiration", BOOLEAN, False)
_DEAD_ON_FILTER = Field("DeadLetteringOnFilterEvaluationExceptions", BOOLEAN, True)
_WINDOW = Field("DuplicateDetectionHistoryTimeWindow", DURATION, 10 * MINUTE_MS, low=20_000, high=7 * DAY_MS)
_DELIVERIES = Field("MaxDeliveryCount", INTEGER, 10, low=1, high=2_000)
_BATCHED = Field("EnableBatchedOperations", BOOLEAN, True)
_ANONYMOUS = Field("IsAnonymousAccessible", BOOLEAN, False, unsupported=True)
_STATUS = Field("Status", STATUS, Status.ACTIVE)
_ORDERING = Field("SupportOrdering", BOOLEAN, True)
_IDLE = Field("AutoDeleteOnIdle", DURATION, low=5 * MINUTE_MS)
_PARTITIONING = Field("EnablePartitioning", BOOLEAN, False, fixed=True)
_EXPRESS = Field("EnableExpress", BOOLEAN, False)
_FORWARD = Field("ForwardTo", ENTITY)
_METADATA = Field("UserMetadata", TEXT, high=1_024)
_FORWARD_DEAD = Field("ForwardDeadLetteredMessagesTo", ENTITY)
FORWARDS = (_FORWARD.name, _FORWARD_DEAD.name)
_MESSAGE_SIZE = Field(
    "MaxMessageSizeInKilobytes", INTEGER, low=1024, high=100 * _KIB, premium=True, since="2021-05"
)

QUEUE = (
    _LOCK,
    _SIZE,
    _DUPLICATES,
    _SESSION,
    _TTL,
    _DEAD,
    _WINDOW,
    _DELIVERIES,
    _BATCHED,
    _ANONYMOUS,
    _STATUS,
    _ORDERING,
    _IDLE,
    _PARTITIONING,
    _EXPRESS,
    _FORWARD,
    _METADATA,
    _FORWARD_DEAD,
    _MESSAGE_SIZE,
)
TOPIC = (
    _TTL,
    _SIZE,
    _DUPLICATES,
    _WINDOW,
    _BATCHED,
    Field("FilteringMessagesBeforePublishing", BOOLEAN, False, unsupported=True),
    _ANONYMOUS,
    _STATUS,
    _ORDERING,
    _IDLE,
    _PARTITIONING,
    Field("EnableSubscriptionPartitioning", BOOLEAN, False, unsupported=True),
    _EXPRESS,
    _METADATA,
    _MESSAGE_SIZE,
)
SUBSCRIPTION = (
    _LOCK,
    _SESSION,
    _TTL,
    _DEAD,
    _DEAD_ON_FILTER,
    _DELIVERIES,
    _BATCHED,
    _STATUS,
    _FORWARD,
    _FORWARD_DEAD,
    _IDLE,
    _METADATA,
)


_STANDARD_MB = range(1024, 5 * 1024 + 1, 1024)
_PARTITIONED_MB = range(16 * 1024, 80 * 1024 + 1, 16 * 1024)
_PREMIUM_MB = range(1024, 80 * 1024 + 1, 1024)


def check_size(values: Values, current: Values | None, *, premium: bool) -> None:
    """Raise BadRequest unless the tier has such a size. One that has not changed is not checked.

    Standard has 1, 2, 3, 4 or 5 GB, and a partitioned entity 16 times as much, which is read back for it ("Service
    Bus quotas", learn.microsoft.com).
    """
    size = values[_SIZE.name]
    if current is not None and size == current[_SIZE.name]:
        return
    allowed = [*(_PREMIUM_MB if premium else _STANDARD_MB)]
    if values[_PARTITIONING.name] and not premium:
        allowed += _PARTITIONED_MB
    if size not in allowed:
        raise BadRequest(
            f"The value '{size}' of the property '{_SIZE.name}' is not one of those of the tier: "
            f"{', '.join(map(str, allowed))}."
        )


# From descriptions to entities


def queue_entity(name: str, values: Values) -> QueueEntity:
    return QueueEntity(name, _sending(values), _receiving(values), _upkeep(name, values))


def topic_entity(name: str, values: Values) -> TopicEntity:
    return TopicEntity(name, _sending(values), values["DefaultMessageTimeToLive"], (), _upkeep(name, values))


def subscription_entity(name: str, values: Values, rules: tuple[Rule, ...]) -> SubscriptionEntity:
    return SubscriptionEntity(name, _receiving(values), rules, _upkeep(name, values))


def _sending(values: Values) -> Sending:
    window_ms = values["DuplicateDetectionHistoryTimeWindow"]
    kilobytes = values["MaxMessageSizeInKilobytes"]
    return Sending(
        DuplicateDetection(window_ms) if values["RequiresDuplicateDetection"] else None,
        values["EnablePartitioning"],
        None if kilobytes is None or kilobytes < _PREMIUM_MESSAGE_KIB else kilobytes * _KIB,
    )


def _receiving(values: Values) -> Receiving:
    return Receiving(
        requires_session=values["RequiresSession"],
        lock_ms=values["LockDuration"],
        max_delivery_count=values["MaxDeliveryCount"],
        default_ttl_ms=values["DefaultMessageTimeToLive"],
        dead_letter_on_expiry=values["DeadLetteringOnMessageExpiration"],
        forward_to=values[_FORWARD.name],
        forward_dead_letters_to=values[_FORWARD_DEAD.name],
    )


def _upkeep(name: str, values: Values) -> ManagementSettings:
    plain = ManagementSettings()
    # An entity that forwards is never idle: the service sets the longest duration. One that forwards to itself, or
    # requires sessions, keeps its own (test_mgmt_queues.py of azure-servicebus).
    is_never_idle = values.get(_FORWARD.name) not in (None, name) and not values["RequiresSession"]
    return ManagementSettings(
        auto_delete_on_idle_ms=None if is_never_idle else values["AutoDeleteOnIdle"],
        window_ms=values.get("DuplicateDetectionHistoryTimeWindow", plain.window_ms),
        max_size_megabytes=values.get("MaxSizeInMegabytes", plain.max_size_megabytes),
        batched_operations=values["EnableBatchedOperations"],
        express=values.get("EnableExpress", plain.express),
        ordering=values.get("SupportOrdering", plain.ordering),
        user_metadata=values["UserMetadata"],
        authorization=values.get(authorization.NAME, plain.authorization),
        dead_letter_on_filter_errors=values.get(_DEAD_ON_FILTER.name, plain.dead_letter_on_filter_errors),
    )


# From entities to descriptions


def queue_values(queue: Queue, *, premium: bool) -> dict[str, Any]:
    entity = queue.entity
    return {
        **_unsupported(QUEUE),
        **_sending_values(entity.sending, entity.management, premium=premium),
        **_receiving_values(entity.receiving, entity.management),
        "Status": queue.inlet.status,
    }


def topic_values(topic: Topic, *, premium: bool) -> dict[str, Any]:
    entity = topic.entity
    return {
        **_unsupported(TOPIC),
        **_sending_values(entity.sending, entity.management, premium=premium),
        **_upkeep_values(entity.management),
        "DefaultMessageTimeToLive": entity.default_ttl_ms,
        "Status": topic.inlet.status,
    }


def subscription_values(subscription: Subscription) -> dict[str, Any]:
    entity = subscription.entity
    return {
        **_unsupported(SUBSCRIPTION),
        **_receiving_values(entity.receiving, entity.management),
        _DEAD_ON_FILTER.name: entity.management.dead_letter_on_filter_errors,
        "Status": subscription.outlet.status,
    }


def _unsupported(fields: tuple[Field, ...]) -> dict[str, Any]:
    return {field.name: field.default for field in fields if field.unsupported}


def _sending_values(sending: Sending, management: ManagementSettings, *, premium: bool) -> dict[str, Any]:
    kilobytes = _PREMIUM_MESSAGE_KIB if premium else _STANDARD_MESSAGE_KIB
    if premium and sending.max_message_bytes is not None:
        kilobytes = sending.max_message_bytes // _KIB
    return {
        "MaxSizeInMegabytes": management.max_size_megabytes,
        "RequiresDuplicateDetection": sending.duplicates is not None,
        "DuplicateDetectionHistoryTimeWindow": (
            management.window_ms if sending.duplicates is None else sending.duplicates.window_ms
        ),
        "SupportOrdering": management.ordering,
        "EnablePartitioning": sending.partitioned,
        "EnableExpress": management.express,
        "MaxMessageSizeInKilobytes": kilobytes,
    }


def _receiving_values(receiving: Receiving, management: ManagementSettings) -> dict[str, Any]:
    return {
        "LockDuration": receiving.lock_ms,
        "RequiresSession": receiving.requires_session,
        "DefaultMessageTimeToLive": receiving.default_ttl_ms,
        "DeadLetteringOnMessageExpiration": receiving.dead_letter_on_expiry,
        "MaxDeliveryCount": receiving.max_delivery_count,
        _FORWARD.name: receiving.forward_to,
        _FORWARD_DEAD.name: receiving.forward_dead_letters_to,
        **_upkeep_values(management),
    }


def _upkeep_values(management: ManagementSettings) -> dict[str, Any]:
    return {
        "EnableBatchedOperations": management.batched_operations,
        "AutoDeleteOnIdle": management.auto_delete_on_idle_ms,
        "UserMetadata": management.user_metadata,
        authorization.NAME: management.authorization,
    }
