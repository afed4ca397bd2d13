"""Checks that a document can be stored and relayed unchanged.

Each rule is a limit of a component downstream, where it would be detected too late.

- Depth: the Functions host parses a page of changes with Newtonsoft.Json and a fixed MaxDepth of 64
  (https://github.com/Azure/azure-functions-dotnet-worker/issues/1226). The array around the page counts as one
  level. A deeper document, of any type, is never passed to a function, and it blocks everything behind it in its
  physical partition.
- Integers: Cosmos DB stores numbers as JavaScript does
  (https://github.com/Azure/azure-cosmos-dotnet-v2/issues/151), exactly only up to 2^53 - 1. The host rejects a
  page with an integer of more than 380 characters.
- Lengths: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas. Keys are counted in the
  UTF-16 code units of .NET. For a message with larger properties the service returns an internal error that asks
  to retry (https://github.com/Azure/azure-sdk-for-net/issues/15325).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from outbox_relay.outbox.errors import InvalidDocument

MAX_DEPTH = 63
"""Levels of objects and arrays. The document's own object is the first, `data` the second."""
MAX_INTEGER = 2**53 - 1
MAX_KEY_LENGTH = 128
"""In UTF-16 code units, for a message id or session id."""
MAX_PROPERTIES_BYTES = 15_000
"""In UTF-8, for all message properties: half of what a message can hold, because CloudEvents repeat them."""


def check_values(document: Mapping[str, Any], name: str) -> None:
    """Check that each value of a document is JSON and can be stored and relayed unchanged.

    Raises:
        TypeError: A value has a type that JSON does not have, or a key is no string: two keys such as 1 and "1"
            would become one. That is a mistake of the service, not of its client.
        InvalidDocument: The document cannot be stored or relayed unchanged.

        The message names the location by the document's first two levels, and contains no value.
    """
    pending: list[tuple[Any, int, tuple[str, ...]]] = [(document, 1, ())]
    while pending:
        value, depth, path = pending.pop()
        if isinstance(value, dict | list | tuple):
            if depth > MAX_DEPTH:  # so a value that contains itself ends here
                raise too_deep(name, path)
            children = value.items() if isinstance(value, dict) else (("", each) for each in value)
            for key, child in children:
                _check_name(key, name, path)
                pending.append((child, depth + 1, path if depth > 2 else (*path, key)))
        else:
            _check_scalar(value, name, path)


def _check_name(key: object, name: str, path: tuple[str, ...]) -> None:
    if not isinstance(key, str):
        raise TypeError(
            f"The data of {name} is not JSON: {_location(path)} contains a key of the type {type(key).__name__}, "
            "which would be stored as a string. Return strings as keys from its to_data()."
        )
    if any("\ud800" <= character <= "\udfff" for character in key):
        # Even of a pair: the character that it makes may be another key.
        raise InvalidDocument(f"The data of {name} contains a surrogate in a key in {_location(path)}: remove it.")


def _check_scalar(value: object, name: str, path: tuple[str, ...]) -> None:
    if isinstance(value, str):
        _check_text(value, name, path)
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InvalidDocument(
                f"{_location(path)} of {name} contains an integer beyond ±(2^53 - 1), which Cosmos DB does "
                "not promise to keep: write it as a string."
            )
    elif isinstance(value, float):
        if not isfinite(value):
            raise InvalidDocument(
                f"The data of {name} is not JSON: {_location(path)} contains NaN or an infinity, which JSON does "
                "not have."
            )
    elif value is not None:
        raise TypeError(
            f"The data of {name} is not JSON: {_location(path)} contains a {type(value).__name__}. Return dates, "
            "decimals and the like as strings from its to_data(), and read them in from_data()."
        )


def _check_text(value: str, name: str, path: tuple[str, ...]) -> None:
    # JSON can escape a lone surrogate, but UTF-8 cannot encode it, and the Functions host would relay another
    # character. JSON joins a pair.
    try:
        value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise InvalidDocument(
            f"The data of {name} contains a lone surrogate in {_location(path)}, which is not a character and "
            "cannot be relayed unchanged: remove it."
        ) from None


def too_deep(name: str, path: tuple[str, ...] = ("data",)) -> InvalidDocument:
    """Return the error for a document with too many levels below `path`."""
    return InvalidDocument(
        f"{_location(path)} of {name} is nested too deeply: a document may have {MAX_DEPTH} levels, including its "
        "own object, or the Functions host withholds it and everything behind it from the relay. Write deeper "
        "levels as a string of JSON or as a separate document."
    )


def check_key(value: str, what: str, name: str) -> None:
    """Check a future message id or session id. Raises InvalidDocument."""
    if not isinstance(value, str):
        raise InvalidDocument(f"The {what} of {name} is not a string.")
    units = len(value.encode("utf-16-le", errors="surrogatepass")) // 2
    if not 0 < units <= MAX_KEY_LENGTH:
        raise InvalidDocument(
            f"The {what} of {name} has {units} characters in UTF-16: choose one with 1 to {MAX_KEY_LENGTH}, the "
            "limit of Service Bus."
        )


def check_properties(properties: Mapping[str, object], name: str) -> None:
    """Check future message properties, by their names in the document.

    Raises:
        InvalidDocument: A property is not a string, or together they are too long.
    """
    sizes: dict[str, int] = {}
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidDocument(f"The {key} of {name} is not a string.")
        sizes[key] = len(value.encode(errors="surrogatepass"))
    if sum(sizes.values()) > MAX_PROPERTIES_BYTES:
        found = ", ".join(f"{key} {size}" for key, size in sizes.items())
        raise InvalidDocument(
            f"The message properties of {name} have {sum(sizes.values())} bytes ({found}), more than "
            f"{MAX_PROPERTIES_BYTES}: shorten them."
        )


def _location(path: tuple[str, ...]) -> str:
    return ".".join(part for part in path if part) or "the document"
