"""The rules of a subscription in an entities file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outbox_relay.emulators.properties import Reader
from outbox_relay.emulators.servicebus.entity_types import DEFAULT_RULE
from outbox_relay.emulators.servicebus.filters import (
    CORRELATION_PROPERTIES,
    CorrelationFilter,
    Filter,
    Rule,
    TrueFilter,
)
from outbox_relay.emulators.servicebus.sql import SqlAction, SqlError, SqlExpression, parse_action, parse_filter

_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][\w\-./]*[A-Za-z0-9]")


def read_rule(rule: Reader) -> Rule:
    """Read one rule, and note what is wrong with it."""
    name = read_name(rule)
    properties = rule.child("Properties", required=True)
    kind = properties.string("FilterType", required=True)
    correlation, sql = properties.child("CorrelationFilter"), properties.child("SqlFilter")
    chosen: Filter | SqlExpression = TrueFilter()
    if kind.lower() == "correlation":
        chosen = _read_correlation(correlation)
    elif kind.lower() == "sql":
        chosen = _read_sql_filter(sql)
    elif kind:
        properties.wrong("FilterType", f"is '{kind}'; it must be 'Correlation' or 'Sql'")
    action = _read_action(properties.child("Action"))
    properties.done()
    rule.done()
    return Rule(name, chosen, action)


def _read_correlation(reader: Reader) -> CorrelationFilter:
    system = {
        property_: value for name, property_ in CORRELATION_PROPERTIES.items() if (value := reader.string(name))
    }
    user: Mapping[str, Any] = reader.mapping("Properties")
    if not system and not user:
        reader.wrong("", "must have at least one property to compare")
    reader.done()
    return CorrelationFilter(system, user)


def _read_sql_filter(reader: Reader) -> Filter | SqlExpression:
    text = reader.string("SqlExpression", required=True)
    reader.done()
    try:
        return parse_filter(text) if text else TrueFilter()
    except SqlError as error:
        reader.wrong("SqlExpression", f"is not a valid filter: {error}")
        return TrueFilter()


def _read_action(reader: Reader) -> SqlAction | None:
    text = reader.string("SqlExpression")
    reader.done()
    try:
        return parse_action(text) if text else None
    except SqlError as error:
        reader.wrong("SqlExpression", f"is not a valid action: {error}")
        return None


def read_name(reader: Reader) -> str:
    """Read the name of a rule or an entity, and note what is wrong with it."""
    name = reader.string("Name", required=True)
    if name and not _NAME.fullmatch(name) and name != DEFAULT_RULE.name:
        reader.wrong("Name", f"'{name}' may hold letters, digits and -_./ between letters or digits")
    return name
