"""Rules of subscriptions as the management API writes them: filters, actions, and typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar
from uuid import UUID
from xml.etree.ElementTree import Element, SubElement

from outbox_relay.emulators.properties import parse_ticks
from outbox_relay.emulators.servicebus.administration import atom, xml
from outbox_relay.emulators.servicebus.administration.errors import BadRequest
from outbox_relay.emulators.servicebus.codec import Moment, TimeSpan
from outbox_relay.emulators.servicebus.filters import (
    CORRELATION_PROPERTIES,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    TrueFilter,
)
from outbox_relay.emulators.servicebus.sql import SqlAction, SqlError, SqlExpression, parse_action, parse_filter

_Written = TypeVar("_Written", "_Integer", "_Real", "_Decimal", "_Duration", "_Guid", "_Text")

_COMPATIBILITY = "20"
_INT32_END = 2**31
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_PER_S = 10_000_000
# A fraction of up to seven digits: what .NET's DateTime has, and Python's has not.
_MOMENT = re.compile(r"(?P<seconds>[^.+Z]+?)(?:\.(?P<fraction>\d{1,7}))?(?P<zone>Z|[+-]\d\d:\d\d|)")


class _Integer(int):
    """A number with its type and text, so that it is written as it was read."""

    kind: str
    text: str


class _Real(float):
    """A number with a fraction, its type and its text, so that it is written as it was read."""

    kind: str
    text: str


class _Decimal(Decimal):
    """A decimal with its type and text of the request."""

    kind: str
    text: str


class _Duration(TimeSpan):
    """A duration, in ticks, with its type and text of the request."""

    kind: str
    text: str


class _Guid(UUID):
    """A unique identifier with its type and text of the request."""

    kind: str
    text: str


class _Text(str):
    """A value that is text in a message, with its type and text, so that it is written as it was read."""

    kind: str
    text: str


# Reading


def read_rule(description: Element, name: str, created_ms: int) -> Rule:
    """Return the rule of a description. Raises BadRequest."""
    found = description.find(atom.name("Filter"))
    action = description.find(atom.name("Action"))
    try:
        return Rule(
            name,
            TrueFilter() if found is None else _read_filter(found),
            None if action is None else _read_action(action),
            created_ms,
        )
    except SqlError as error:
        raise BadRequest(f"The SQL of the rule '{name}' is not valid: {error}.") from error


def _read_filter(found: Element) -> Filter | SqlExpression:
    kind = _kind(found)
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "SqlFilter":
        return parse_filter(_expression(found), _key_values(found, "Parameters"))
    if kind == "CorrelationFilter":
        return _read_correlation(found)
    raise BadRequest(f"A filter of the type '{kind}' is not known.")


def _read_correlation(found: Element) -> CorrelationFilter:
    texts = {field: atom.text_of(found, name) for name, field in CORRELATION_PROPERTIES.items()}
    system = {field: text for field, text in texts.items() if text is not None}
    user = _key_values(found, "Properties")
    if not system and not user:
        raise BadRequest("A correlation filter must have at least one property.")
    return CorrelationFilter(system, user)


def _read_action(found: Element) -> SqlAction | None:
    kind = _kind(found)
    if kind == "EmptyRuleAction":
        return None
    if kind == "SqlRuleAction":
        return parse_action(_expression(found), _key_values(found, "Parameters"))
    raise BadRequest(f"An action of the type '{kind}' is not known.")


def _kind(found: Element) -> str:
    return found.get(atom.name("type", xml.INSTANCE), "").rpartition(":")[2]


def _expression(found: Element) -> str:
    """Return the expression as it was written, spaces at its ends included.

    Tools compare it with what they wrote.
    """
    child = found.find(atom.name("SqlExpression"))
    text = "" if child is None else child.text or ""
    if not text.strip():
        raise BadRequest("The SQL expression is missing.")
    return text


def _key_values(found: Element, name: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    parent = found.find(atom.name(name))
    for pair in () if parent is None else parent:
        key, value = atom.text_of(pair, "Key"), pair.find(atom.name("Value"))
        if key is None or value is None:
            raise BadRequest(f"Each of the {name} must have a Key and a Value.")
        values[key] = _read_value(key, value)
    return values


def _read_value(key: str, value: Element) -> Any:
    kind, text = _kind(value), value.text or ""
    try:
        if kind in ("int", "long", "short", "byte"):
            return _as_written(_Integer(text), kind, text)
        if kind in ("double", "float"):
            return _as_written(_Real(text), kind, text)
        if kind == "decimal":
            return _as_written(_Decimal(text), kind, text)
        if kind == "guid":
            return _as_written(_Guid(text), kind, text)
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind == "dateTime":
            return _read_moment(text)
        if kind == "duration":
            return _as_written(_Duration(parse_ticks(text)), kind, text)
    except (KeyError, ValueError, InvalidOperation) as error:
        raise BadRequest(f"The value '{text}' of '{key}' is no {kind}.") from error
    if kind in ("string", "anyURI"):
        return _as_written(_Text(text), kind, text)
    raise BadRequest(
        f"The value of '{key}' is of the type '{kind}', which is not supported by the local Service Bus."
    )


def _as_written(value: _Written, kind: str, text: str) -> _Written:
    # A UUID refuses to have attributes set.
    vars(value).update(kind=kind, text=text)
    return value


def _read_moment(text: str) -> Moment:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    found = datetime.fromisoformat(match["seconds"] + match["zone"])
    # Without a zone it is read as UTC, as the timestamps of messages are.
    moment = found if match["zone"] else found.replace(tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return Moment(seconds * _TICKS_PER_S + int((match["fraction"] or "").ljust(7, "0")), local=not match["zone"])


# Writing


def write_rule(rule: Rule, subscription_created_ms: int) -> Element:
    """Make the description of a rule."""
    created = subscription_created_ms if rule.created_ms is None else rule.created_ms
    return atom.element(
        "RuleDescription",
        [
            _write_filter(rule.filter),
            _write_action(rule.action),
            ("CreatedAt", atom.moment(created)),
            ("Name", rule.name),
        ],
    )


def _write_filter(found: Filter | SqlExpression) -> Element:
    if isinstance(found, SqlExpression):
        return _write_sql("Filter", "SqlFilter", found.text, found.parameters)
    if isinstance(found, CorrelationFilter):
        return _write_correlation(found)
    if isinstance(found, FalseFilter):
        return _write_sql("Filter", "FalseFilter", "1=0", {})
    return _write_sql("Filter", "TrueFilter", "1=1", {})


def _write_correlation(found: CorrelationFilter) -> Element:
    pairs = [
        (name, found.system[field]) for name, field in CORRELATION_PROPERTIES.items() if field in found.system
    ]
    return _typed("Filter", "CorrelationFilter", [*pairs, _write_key_values("Properties", found.user)])


def _write_action(action: SqlAction | None) -> Element:
    if action is None:
        return _typed("Action", "EmptyRuleAction", [])
    return _write_sql("Action", "SqlRuleAction", action.text, action.parameters)


def _write_sql(tag: str, kind: str, text: str, parameters: Mapping[str, Any]) -> Element:
    children: list[Element | tuple[str, str]] = [("SqlExpression", text), ("CompatibilityLevel", _COMPATIBILITY)]
    return _typed(tag, kind, [*children, _write_key_values("Parameters", parameters)])


def _typed(tag: str, kind: str, children: list[Element | tuple[str, str]] | list[Any]) -> Element:
    made = atom.element(tag, children)
    made.set(atom.name("type", xml.INSTANCE), kind)
    return made


def _write_key_values(tag: str, values: Mapping[str, Any]) -> Element:
    made = atom.element(tag)
    for key, value in values.items():
        kind, text = _write_value(value)
        pair = SubElement(made, atom.name("KeyValueOfstringanyType"))
        SubElement(pair, atom.name("Key")).text = key
        # The prefix is in a value, where ElementTree does not look: it is declared by hand.
        attributes = {"xmlns:d6p1": atom.SCHEMA, atom.name("type", xml.INSTANCE): f"d6p1:{kind}"}
        SubElement(pair, atom.name("Value"), attributes).text = text
    return made


def _write_value(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", "true" if value else "false"
    if isinstance(value, Moment):
        return "dateTime", _write_moment(value)
    if isinstance(value, _Integer | _Real | _Decimal | _Duration | _Guid | _Text):
        return value.kind, value.text
    if isinstance(value, TimeSpan):
        return "duration", f"{'-' if value < 0 else ''}PT{Decimal(abs(value)) / _TICKS_PER_S:f}S"
    if isinstance(value, Decimal | UUID):
        return "decimal" if isinstance(value, Decimal) else "guid", str(value)
    if isinstance(value, int):
        # One that came over AMQP has its own type, which writes itself in another way.
        return "int" if -_INT32_END <= value < _INT32_END else "long", str(int(value))
    if isinstance(value, float):
        return "double", repr(float(value))
    return "string", str(value)


def _write_moment(moment: Moment) -> str:
    seconds, fraction = divmod(moment.ticks, _TICKS_PER_S)
    text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    digits = f".{fraction:07d}".rstrip("0") if fraction else ""
    return text + digits + ("" if moment.local else "Z")
