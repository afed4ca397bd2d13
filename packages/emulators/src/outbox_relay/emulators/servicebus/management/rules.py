"""Operations on the rules of a subscription, for clients that have no right to manage it.

Requests have maps, answers have described lists ("AMQP request/response operations", learn.microsoft.com; the
codecs of azure-sdk-for-net, `Amqp/Framing`, which have the rule's age as a fourth field).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from proton import Described, decimal32, decimal64, decimal128, timestamp, ulong

from outbox_relay.emulators.servicebus.codec import TICKS_PER_MS, Moment, TimeSpan, decode
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid
from outbox_relay.emulators.servicebus.filters import CorrelationFilter, FalseFilter, Filter, Rule, TrueFilter
from outbox_relay.emulators.servicebus.management.request import Request, Result
from outbox_relay.emulators.servicebus.message import Property
from outbox_relay.emulators.servicebus.proton_values import from_codec, to_codec
from outbox_relay.emulators.servicebus.sql import SqlAction, SqlError, SqlExpression, parse_action, parse_filter

_LONGEST_NAME = 50

_RULE, _EMPTY_ACTION, _SQL_ACTION = ulong(0x13700000004), ulong(0x13700000005), ulong(0x13700000006)
_SQL_FILTER, _TRUE_FILTER, _FALSE_FILTER = ulong(0x1370000006), ulong(0x1370000007), ulong(0x1370000008)
_CORRELATION_FILTER = ulong(0x1370000009)

_CORRELATION_FIELDS = {
    "correlation-id": Property.CORRELATION_ID,
    "message-id": Property.MESSAGE_ID,
    "to": Property.TO,
    "reply-to": Property.REPLY_TO,
    "label": Property.SUBJECT,
    "session-id": Property.GROUP_ID,
    "reply-to-session-id": Property.REPLY_TO_GROUP_ID,
    "content-type": Property.CONTENT_TYPE,
}
"""In the order of the described list."""


def add_rule(request: Request) -> Result:
    subscription = request.subscription()
    name = _name(request)
    now = request.broker.namespace.timers.now()
    subscription.add_rule(read_rule(name, request.body["rule-description"], now))
    return {}


def remove_rule(request: Request) -> Result:
    request.subscription().remove_rule(_name(request))
    return {}


def enumerate_rules(request: Request) -> Result:
    subscription = request.subscription()
    rules = subscription.rules[request.page()]
    if not rules:
        return None
    created = subscription.times.created_ms
    return {"rules": [{"rule-description": write_rule(rule, created)} for rule in rules]}


def _name(request: Request) -> str:
    name = request.body["rule-name"]
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise ArgumentInvalid(f"The rule-name must be a string of 1 to {_LONGEST_NAME} characters.")
    return name


# Reading


def read_rule(name: str, description: Any, created_ms: int) -> Rule:
    """Return the rule that the map of a request describes. Raises ArgumentInvalid."""
    if not isinstance(description, Mapping):
        raise ArgumentInvalid(f"The rule '{name}' needs a map for its rule-description.")
    sql, correlation = description.get("sql-filter"), description.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise ArgumentInvalid(f"The rule '{name}' needs a sql-filter or a correlation-filter, and not both.")
    action = description.get("sql-rule-action")
    try:
        return Rule(
            name,
            _read_correlation(name, correlation) if sql is None else parse_filter(_expression(name, sql)),
            None if action is None else parse_action(_expression(name, action)),
            created_ms,
        )
    except SqlError as error:
        raise ArgumentInvalid(f"The SQL of the rule '{name}' is not valid: {error}.") from error


def _expression(name: str, fields: Any) -> str:
    text = fields.get("expression") if isinstance(fields, Mapping) else None
    if not isinstance(text, str):
        raise ArgumentInvalid(f"The rule '{name}' has a SQL filter or action without an expression.")
    return text


def _read_correlation(name: str, fields: Any) -> CorrelationFilter:
    found = fields if isinstance(fields, Mapping) else {}
    system = {field: str(found[key]) for key, field in _CORRELATION_FIELDS.items() if found.get(key) is not None}
    user = {str(key): _read_value(value) for key, value in (found.get("properties") or {}).items()}
    if not system and not user:
        raise ArgumentInvalid(f"The correlation filter of the rule '{name}' must have at least one property.")
    return CorrelationFilter(system, user)


def _read_value(value: Any) -> Any:
    if isinstance(value, timestamp):
        return Moment(value * TICKS_PER_MS)
    return (
        decode(to_codec(value))[0] if isinstance(value, Described | decimal32 | decimal64 | decimal128) else value
    )


# Writing


def write_rule(rule: Rule, subscription_created_ms: int) -> Described:
    """Make the described list of a rule."""
    created = subscription_created_ms if rule.created_ms is None else rule.created_ms
    return Described(
        _RULE, [_write_filter(rule.filter), _write_action(rule.action), rule.name, timestamp(created)]
    )


def _write_filter(found: Filter | SqlExpression) -> Described:
    if isinstance(found, SqlExpression):
        return Described(_SQL_FILTER, [found.text])
    if isinstance(found, CorrelationFilter):
        fields: list[Any] = [found.system.get(field) for field in _CORRELATION_FIELDS.values()]
        user: Any = {name: _write_value(value) for name, value in found.user.items()}
        return Described(_CORRELATION_FILTER, [*fields, user])
    if isinstance(found, FalseFilter):
        return Described(_FALSE_FILTER, [])
    assert isinstance(found, TrueFilter)
    return Described(_TRUE_FILTER, [])


def _write_action(action: SqlAction | None) -> Described:
    if action is None:
        return Described(_EMPTY_ACTION, [])
    return Described(_SQL_ACTION, [action.text])


def _write_value(value: Any) -> Any:
    """A timestamp has milliseconds: that is all that .NET sends of a DateTime too."""
    if isinstance(value, Moment):
        return timestamp(value)
    return from_codec(value) if isinstance(value, TimeSpan | Decimal) else value
