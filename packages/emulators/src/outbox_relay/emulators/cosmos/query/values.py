"""JSON values as queries see them: with undefined, without any conversion between types.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/equality-comparison-operators: comparing values
of different types gives undefined.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import orjson

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.query.complex_values import ComplexPlace


class Undefined:
    """The value of a missing property."""

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined()


class Kind(IntEnum):
    """The types of JSON, in the order in which ORDER BY puts them."""

    UNDEFINED = 0
    NULL = 1
    BOOLEAN = 2
    NUMBER = 3
    STRING = 4
    ARRAY = 5
    OBJECT = 6


_KINDS: dict[type, Kind] = {
    Undefined: Kind.UNDEFINED,
    type(None): Kind.NULL,
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    list: Kind.ARRAY,
    dict: Kind.OBJECT,
}


def kind_of(value: Any) -> Kind:
    return _KINDS[type(value)]


def equal(left: Any, right: Any) -> bool | Undefined:
    """Compare two values for equality. It is undefined across types, and where either side is undefined."""
    kind = kind_of(left)
    if kind is Kind.UNDEFINED or kind is not kind_of(right):
        return UNDEFINED
    return same(left, right)


def same(left: Any, right: Any) -> bool:
    """Return True if two values are the same JSON value: `1` is `1.0`, but `true` is not `1`."""
    kind = kind_of(left)
    if kind is not kind_of(right):
        return False
    if kind is Kind.ARRAY:
        return len(left) == len(right) and all(map(same, left, right))
    if kind is Kind.OBJECT:
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right) or kind is Kind.UNDEFINED


def order(left: Any, right: Any) -> int | Undefined:
    """Return a negative, zero or positive number. It is undefined across types, and for arrays and objects."""
    kind = kind_of(left)
    if kind is not kind_of(right) or kind in (Kind.UNDEFINED, Kind.ARRAY, Kind.OBJECT):
        return UNDEFINED
    if kind is Kind.NULL:
        return 0
    return int(left > right) - int(left < right)


def sort_key(value: Any) -> Any:
    """Return the value by which ORDER BY sorts: itself, or the place of an array or object."""
    return ComplexPlace.of(value) if isinstance(value, list | dict) else value


def sort_order(left: Any, right: Any) -> int:
    """Return the order of any two values, or sort keys, for ORDER BY, MIN and MAX: by type, then by value."""
    one, other = sort_rank(left), sort_rank(right)
    return int(one > other) - int(one < other)


def sort_rank(value: Any) -> tuple[Kind, Any]:
    """Return a tuple that sorts as ORDER BY sorts any value, or sort key: by type, then by value."""
    kind = _sorted_kind(value)
    if kind in (Kind.ARRAY, Kind.OBJECT):
        return kind, _rank(value)
    return kind, 0 if kind in (Kind.UNDEFINED, Kind.NULL) else value


def _sorted_kind(value: Any) -> Kind:
    if isinstance(value, ComplexPlace):
        return Kind.ARRAY if value.type == "array" else Kind.OBJECT
    return kind_of(value)


def _rank(value: Any) -> bytes:
    return value.rank if isinstance(value, ComplexPlace) else ComplexPlace.of(value).rank


def canonical(value: Any) -> str:
    """Return a text that two values share if they are the same JSON value."""
    return jsontext.dump(_sorted_members(value))


def load(text: str) -> Any:
    """Read a text that is known to be JSON."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        # orjson does not read lone surrogates, which JSON allows as escapes.
        return jsontext.parse(text).value


def _sorted_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted_members(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted_members(element) for element in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
