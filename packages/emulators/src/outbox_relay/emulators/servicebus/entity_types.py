"""The properties and the status of queues, topics and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outbox_relay.emulators.servicebus.authorization import AuthorizationRule
from outbox_relay.emulators.servicebus.filters import Rule, TrueFilter

DEFAULT_RULE = Rule("$Default", TrueFilter())

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class DuplicateDetection:
    """Duplicates are detected within `window_ms` milliseconds."""

    window_ms: int


@dataclass(frozen=True, slots=True)
class Receiving:
    """How a queue or subscription delivers messages. Durations are milliseconds.

    It forwards messages, or dead letters, to the path of a queue or topic.
    """

    requires_session: bool = False
    lock_ms: int = MINUTE_MS
    max_delivery_count: int = 10
    default_ttl_ms: int | None = None
    dead_letter_on_expiry: bool = False
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None


@dataclass(frozen=True, slots=True)
class Sending:
    """How a queue or topic accepts messages."""

    duplicates: DuplicateDetection | None = None
    partitioned: bool = False
    max_message_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    """Other properties of the management API: they affect no message, except by the deletion of an idle entity.

    `window_ms` is the duplicate detection window that is shown where duplicates are not detected. With
    `dead_letter_on_filter_errors` a subscription dead-letters a message for which a rule fails.
    """

    auto_delete_on_idle_ms: int | None = None
    window_ms: int = 10 * MINUTE_MS
    max_size_megabytes: int = 1024
    batched_operations: bool = True
    express: bool = False
    ordering: bool = True
    user_metadata: str | None = None
    dead_letter_on_filter_errors: bool = True
    authorization: tuple[AuthorizationRule, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueEntity:
    name: str
    sending: Sending = Sending()
    receiving: Receiving = Receiving()
    management: ManagementSettings = ManagementSettings()


@dataclass(frozen=True, slots=True)
class SubscriptionEntity:
    name: str
    receiving: Receiving = Receiving()
    rules: tuple[Rule, ...] = (DEFAULT_RULE,)
    management: ManagementSettings = ManagementSettings()


@dataclass(frozen=True, slots=True)
class TopicEntity:
    name: str
    sending: Sending = Sending()
    default_ttl_ms: int | None = None
    subscriptions: tuple[SubscriptionEntity, ...] = ()
    management: ManagementSettings = ManagementSettings()


class Status(StrEnum):
    """The values of EntityStatus in the management API that users can set."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    DISABLED = "Disabled"

    @property
    def sends(self) -> bool:
        return self in (Status.ACTIVE, Status.RECEIVE_DISABLED)

    @property
    def receives(self) -> bool:
        return self in (Status.ACTIVE, Status.SEND_DISABLED)
