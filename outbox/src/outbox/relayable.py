"""What a document must be so that it is stored, and reaches a subscriber, as it was written.

Each rule is a limit of a part behind this library, found there too late: for one document, or for all behind it.

- Depth: the Functions host parses a page of changes with Newtonsoft.Json, whose MaxDepth is 64 there and cannot
  be set (https://github.com/Azure/azure-functions-dotnet-worker/issues/1226). The array around the page counts as
  one. A document beyond that is never handed to a function, of whatever type it is, and holds back all that follow
  it in its physical partition.
- Integers: numbers in Cosmos DB are those of JavaScript (https://github.com/Azure/azure-cosmos-dotnet-v2/issues/151),
  which keeps integers up to 2^53 - 1. The host refuses a page with an integer of more than 380 characters.
- Lengths: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas, in the UTF-16 units of .NET
  for keys. A message with larger properties is answered with an internal error that asks to try again
  (https://github.com/Azure/azure-sdk-for-net/issues/15325).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outbox.errors import InvalidDocument

MAX_DEPTH = 63
"""Levels of objects and arrays, the document's own object being the first and `data` the second."""
MAX_INTEGER = 2**53 - 1
MAX_KEY_LENGTH = 128
"""UTF-16 units of what becomes a message's id or session."""
MAX_PROPERTIES_BYTES = 15_000
"""Of UTF-8, in what becomes properties of a message: half of what one holds, as CloudEvents repeat them."""


def check_values(document: Mapping[str, Any], name: str) -> None:
    """Check depth and integers of a JSON document.

    Raises:
        InvalidDocument: It could not be relayed as it was written. The message tells the place by the names of the
            document's first two levels, and no value.
    """
    pending: list[tuple[Any, int, tuple[str, ...]]] = [(document, 1, ())]
    while pending:
        value, depth, place = pending.pop()
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise too_deep(name, place)
            children = value.items() if isinstance(value, dict) else (("", each) for each in value)
            pending += [(child, depth + 1, place if depth > 2 else (*place, key)) for key, child in children]
        elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InvalidDocument(
                f"{_place(place)} of {name} holds an integer beyond ±(2^53 - 1), which Cosmos DB does not keep: "
                "write it as a string."
            )


def too_deep(name: str, place: tuple[str, ...] = ("data",)) -> InvalidDocument:
    """The error of a document that has too many levels at a place."""
    return InvalidDocument(
        f"{_place(place)} of {name} is nested too deeply: a document has {MAX_DEPTH} levels at most, its own "
        "object included, or the Functions host withholds it and all that follow it from the relay. Write what is "
        "deeper as a string of JSON, or as a document of its own."
    )


def check_key(value: str, what: str, name: str) -> None:
    """Check what becomes a message's id or session. Raises InvalidDocument."""
    units = len(value.encode("utf-16-le", errors="surrogatepass")) // 2
    if not 0 < units <= MAX_KEY_LENGTH:
        raise InvalidDocument(
            f"The {what} of {name} has {units} characters, as .NET counts them (UTF-16): it has to have 1 to "
            f"{MAX_KEY_LENGTH}, which is what Service Bus takes."
        )


def check_properties(properties: Mapping[str, object], name: str) -> None:
    """Check what becomes properties of a message: texts by their names in the document.

    Raises:
        InvalidDocument: One is no text, or together they are too long.
    """
    sizes: dict[str, int] = {}
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidDocument(f"The {key} of {name} is no string.")
        sizes[key] = len(value.encode(errors="surrogatepass"))
    if sum(sizes.values()) > MAX_PROPERTIES_BYTES:
        found = ", ".join(f"{key} {size}" for key, size in sizes.items())
        raise InvalidDocument(
            f"What becomes properties of the message of {name} has {sum(sizes.values())} bytes ({found}): "
            f"{MAX_PROPERTIES_BYTES} at most can be sent."
        )


def _place(place: tuple[str, ...]) -> str:
    return ".".join(part for part in place if part)
