"""JSON text of what came as JSON text, value for value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson


def encode(value: Any, *, sort_keys: bool = False) -> bytes:
    """Compact UTF-8 JSON.

    orjson nests 254 levels at most. Cosmos DB takes 128, so that is the rule; a document that comes deeper all
    the same is encoded by the standard library or, from about a thousand levels, by the loop below.
    """
    try:
        # A copy of the right size: orjson (3.13) gives its text in the buffer it wrote to, often ten times as
        # large, and the bodies of all batches under way are held at once.
        return bytes(memoryview(orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)))
    except orjson.JSONEncodeError:
        # In ASCII, as a lone surrogate has an escape in JSON and no bytes in UTF-8.
        try:
            return _dumps(value, sort_keys).encode()
        except RecursionError:
            return "".join(_deep(value, sort_keys)).encode()


def _dumps(value: Any, sort_keys: bool) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)


def _deep(value: Any, sort_keys: bool) -> Iterator[str]:
    """The same text without recursion, whose limit differs between versions of Python."""
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _Text):
            yield each
        elif isinstance(each, dict):
            waiting.append(_Text("}"))
            members = sorted(each.items(), reverse=True) if sort_keys else reversed(each.items())
            for number, (name, member) in enumerate(members, 1):
                comma = "," if number < len(each) else ""
                waiting += (member, _Text(f"{comma}{json.dumps(name)}:"))
            yield "{"
        elif isinstance(each, list):
            waiting.append(_Text("]"))
            for number, member in enumerate(reversed(each), 1):
                waiting += (member, _Text("," if number < len(each) else ""))
            yield "["
        else:
            yield _dumps(each, sort_keys)


class _Text(str):
    """A part of the text, which a value of type str is not."""

    __slots__ = ()
