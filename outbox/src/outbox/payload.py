"""Converts the fields of a dataclass to JSON data: names in camelCase, values unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from outbox.errors import InvalidDocument
from outbox.relayable import too_deep


def camel_case(name: str) -> str:
    """Return `first_name` or `_first_name` as `firstName`."""
    head, *rest = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def lower_first(name: str) -> str:
    """Return `OrderLine` as `orderLine`."""
    return name[:1].lower() + name[1:]


def to_json(value: object) -> Any:
    """Convert dataclasses within `value` to objects with names in camelCase, and tuples to lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {camel_case(field.name): to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(element) for element in value]
    return value


def encode(value: object, subject: str) -> str:
    """Return JSON as azure-cosmos sends it by default: compact, in ASCII.

    Raises:
        TypeError: `value` contains an object of a type that JSON does not have. That is a mistake of the service,
            not of its client.
        InvalidDocument: It contains a number that JSON does not have, or is nested too deeply.
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise too_deep(subject) from error
    except TypeError as error:
        raise TypeError(
            f"The data of {subject} is not JSON: {error}. Return dates, decimals and the like as strings from its "
            "to_data(), and read them in from_data()."
        ) from error
    except ValueError as error:
        raise InvalidDocument(f"The data of {subject} is not JSON: {error}.") from error


def deep_copy(value: object, subject: str) -> Any:
    """Return a deep copy of JSON data, equal to what a reader will find stored.

    Raises:
        TypeError: As `encode`.
        InvalidDocument: As `encode`, or `value` contains a lone surrogate. JSON can escape a lone surrogate, but
            UTF-8 cannot encode it, and the Functions host would relay another character.
    """
    # Cannot exceed the recursion limit: decoding takes less of the stack than encoding did.
    copy = json.loads(encode(value, subject))
    try:
        json.dumps(copy, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidDocument(
            f"The data of {subject} contains a lone surrogate, which is not a character and cannot be relayed "
            "unchanged: remove it."
        ) from error
    return copy
