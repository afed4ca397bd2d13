"""Converts the fields of a dataclass to JSON data: names in camelCase, values unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from outbox.relayable import MAX_DEPTH, check_values


def camel_case(name: str) -> str:
    """Return `first_name` or `_first_name` as `firstName`."""
    head, *rest = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def lower_first(name: str) -> str:
    """Return `OrderLine` as `orderLine`."""
    return name[:1].lower() + name[1:]


def to_json(value: object, depth: int = 0) -> Any:
    """Convert dataclasses within `value`, at `depth`, to objects with names in camelCase, and tuples to lists.

    Raises:
        TypeError: Two fields of a dataclass have one name in camelCase.
    """
    if depth > MAX_DEPTH:
        return value  # `check_values` refuses it with its location
    if is_dataclass(value) and not isinstance(value, type):
        names = json_names(type(value))
        return {name: to_json(getattr(value, field), depth + 1) for field, name in names.items()}
    if isinstance(value, Mapping):
        return {key: to_json(element, depth + 1) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(element, depth + 1) for element in value]
    return value


def json_names(kind: type) -> Mapping[str, str]:
    """Return the names in camelCase of a dataclass's fields, by their names in Python.

    Raises:
        TypeError: Two fields have one name, so that one of them would be lost.
    """
    return _json_names(kind)


@cache
def _json_names(kind: type) -> Mapping[str, str]:
    fields_of: dict[str, str] = {}
    for field in fields(kind):
        name = camel_case(field.name)
        if name in fields_of:
            raise TypeError(
                f"{kind.__name__}.{field.name} and {kind.__name__}.{fields_of[name]} are both stored as {name!r}: "
                "rename one of them."
            )
        fields_of[name] = field.name
    return {field: name for name, field in fields_of.items()}


def encode(value: object) -> str:
    """Return JSON as azure-cosmos sends it by default: compact, in ASCII. `value` is checked by `check_values`."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def deep_copy(document: Mapping[str, Any], subject: str) -> Any:
    """Return a deep copy of a JSON document, equal to what a reader will find stored.

    Raises:
        TypeError, InvalidDocument: As `check_values`.
    """
    check_values(document, subject)
    return json.loads(encode(document))
