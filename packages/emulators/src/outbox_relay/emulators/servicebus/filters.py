"""The rules of a subscription: which messages of the topic it takes, and what it changes in its copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from outbox_relay.emulators.servicebus.message import Message, Property
from outbox_relay.emulators.servicebus.sql import EvaluationError, SqlAction, SqlExpression, comparable, spellings


class Filter(Protocol):
    """Decides which messages a subscription takes."""

    def matches(self, message: Message) -> bool: ...


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Takes every message, as a subscription's default rule does."""

    def matches(self, message: Message) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Takes no message."""

    def matches(self, message: Message) -> bool:
        return False


CORRELATION_PROPERTIES: dict[str, Property] = {
    "ContentType": Property.CONTENT_TYPE,
    "CorrelationId": Property.CORRELATION_ID,
    "Label": Property.SUBJECT,
    "MessageId": Property.MESSAGE_ID,
    "ReplyTo": Property.REPLY_TO,
    "ReplyToSessionId": Property.REPLY_TO_GROUP_ID,
    "SessionId": Property.GROUP_ID,
    "To": Property.TO,
}


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Takes messages whose properties equal all that are given; case counts in values, not in names."""

    system: Mapping[Property, str]
    user: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, message: Message) -> bool:
        for name, wanted in self.system.items():
            if message.field(name) != wanted:
                return False
        if not self.user:
            return True
        properties = message.application_properties
        return all(
            any(_equal(properties[each], wanted) for each in spellings(properties, name)[:1])
            for name, wanted in self.user.items()
        )


def _equal(value: Any, wanted: Any) -> bool:
    """Return whether values are equal; those of types that C# does not compare are not."""
    return comparable(value, wanted) and bool(value == wanted)


@dataclass(frozen=True, slots=True)
class Rule:
    """A named filter, with an action on the copy it lets through.

    `created_ms`, since the epoch, is None for a rule that is as old as its subscription.
    """

    name: str
    filter: Filter | SqlExpression
    action: SqlAction | None = None
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rule could not be evaluated for a message, as a dead letter has it.

    The reason is the name of the service's exception, the description its message ("Service Bus messaging
    exceptions", and until 2020 "Overview of Service Bus dead-letter queues", learn.microsoft.com).
    """

    reason: str
    description: str


def copies(rules: tuple[Rule, ...], message: Message) -> tuple[list[Message], Failure | None]:
    """Return what a subscription with these rules gets of a message, and the first failure of a rule.

    One copy for all the matching rules without an action, and one of its own for each that has one ("Topic
    filters and actions", learn.microsoft.com). A rule that fails lets nothing through.
    """
    found: list[Message] = []
    failure: Failure | None = None
    plain = False
    for rule in rules:
        try:
            if not rule.filter.matches(message):
                continue
        except EvaluationError as error:
            failure = failure or Failure("FilterException", str(error))
            continue
        if rule.action is not None:
            try:
                found.append(rule.action.apply(message))
            except EvaluationError as error:
                failure = failure or Failure("RuleActionException", str(error))
        elif not plain:
            plain = True
            found.append(message)
    return found, failure
