"""Makes an event of a smoke test one of a stream: with values for which a rule that leads there holds."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from relay.canary import PREFIX
from relay.events import Document
from relay.routes.conditions import Condition, Scalar
from relay.routes.pointers import Pointer
from relay.routes.selection import Route, Selection


def example(document: Document, selection: Selection) -> Document | None:
    """The document, changed as little as a rule asks for; None if that cannot be done without harm.

    Its id and action stay, and its key keeps its own end: an event with the action or the key of real ones would
    be handled by their consumers.
    """
    for route in selection.routes or (Route((), (selection.destination,)),):
        if selection.destination not in route.to:
            continue
        for kind in selection.types or (selection.type,):
            made: dict[str, Any] = deepcopy({**document, "type": kind})
            for condition in (*route.when, *selection.events):
                if not condition.holds(made):
                    _fulfil(condition, made)
            if selection.takes(made) and (not selection.routes or selection.route_of(made) is not None):
                return made
    return None


def _fulfil(condition: Condition, document: dict[str, Any]) -> None:
    """Set the value of a condition, if it may be set."""
    data = document["data"]
    if condition.name == "action" and condition.prefix is not None:
        data["action"] = condition.prefix + data["action"]
    elif condition.name == "key" and condition.prefix is not None:
        document["partitionKey"] = condition.prefix + document["partitionKey"]
    elif condition.name.startswith("/data/"):
        _set(data, Pointer.parse(condition.name).names[1:], _value(condition))


def _value(condition: Condition) -> Scalar:
    return condition.values[0] if condition.prefix is None else f"{condition.prefix}{PREFIX}"


def _set(data: dict[str, Any], names: tuple[str, ...], value: Scalar) -> None:
    *way, last = names
    if names == ("action",):
        return
    for name in way:
        inner = data.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        data = inner
    data[last] = value
