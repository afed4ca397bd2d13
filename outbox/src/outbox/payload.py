"""From the fields of a dataclass to JSON data: their names in camelCase, their values as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from outbox.errors import InvalidDocument
from outbox.relayable import too_deep


def camel_case(name: str) -> str:
    """`first_name`, and `_first_name`, as `firstName`."""
    head, *rest = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def first_small(name: str) -> str:
    """`OrderLine` as `orderLine`."""
    return name[:1].lower() + name[1:]


def rendered(value: object) -> Any:
    """Dataclasses within `value` as objects with names in camelCase, tuples as lists, all else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {camel_case(field.name): rendered(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: rendered(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [rendered(element) for element in value]
    return value


def encode(value: object, subject: str) -> str:
    """JSON as azure-cosmos sends it by default: compact, in ASCII.

    Raises:
        InvalidDocument: `subject` holds something that is not JSON.
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise too_deep(subject) from error
    except (TypeError, ValueError) as error:
        raise InvalidDocument(
            f"The data of {subject} is not JSON: {error}. Dates, decimals and the like are written as strings."
        ) from error


def copied(value: object, subject: str) -> Any:
    """A deep copy of JSON data: what a reader will find stored.

    Raises:
        InvalidDocument: `subject` holds something that is not JSON, is nested too deeply, or holds text that is
            not Unicode. JSON can escape a lone surrogate, but UTF-8 has no bytes for it, and the Functions host
            would relay another character in its place.
    """
    # What can be written can be read: reading takes less of the stack.
    copy = json.loads(encode(value, subject))
    try:
        json.dumps(copy, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidDocument(
            f"The data of {subject} holds a lone surrogate, which is no character: it could not be relayed "
            "as it was written."
        ) from error
    return copy
