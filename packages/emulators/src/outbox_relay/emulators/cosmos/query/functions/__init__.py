"""The built-in functions: those that are served, and those that are refused by name.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/system-functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outbox_relay.emulators.cosmos.documents import raw_resource_id
from outbox_relay.emulators.cosmos.query.functions.arrays import ARRAYS
from outbox_relay.emulators.cosmos.query.functions.dates import DATES, is_datetime
from outbox_relay.emulators.cosmos.query.functions.definitions import Function, integer_of
from outbox_relay.emulators.cosmos.query.functions.mathematical import MATHEMATICAL
from outbox_relay.emulators.cosmos.query.functions.strings import STRINGS
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, Kind, kind_of

__all__ = ["FUNCTIONS", "REFUSED", "Function"]

_PRIMITIVES = (Kind.NULL, Kind.BOOLEAN, Kind.NUMBER, Kind.STRING)
_INTEGERS = range(-(1 << 63), 1 << 63)


def _is(*kinds: Kind) -> Function:
    return Function(lambda value: kind_of(value) in kinds, 1, 1)


def _is_integer(value: Any) -> bool:
    number = integer_of(value)
    return number is not None and number in _INTEGERS


def _document_id(item: Any) -> Any:
    """Return the number of an item within its physical partition, which its `_rid` has."""
    if not isinstance(item, dict) or not isinstance(item.get("_rid"), str):
        return UNDEFINED
    return int.from_bytes(raw_resource_id(item["_rid"])[8:], "little")


_TYPES: dict[str, Function] = {
    "DOCUMENTID": Function(_document_id, 1, 1),
    "IS_ARRAY": _is(Kind.ARRAY),
    "IS_BOOL": _is(Kind.BOOLEAN),
    # Its page does not name it: the SDK for Java (4.81.0) resumes ORDER BY with it.
    "IS_BOOLEAN": _is(Kind.BOOLEAN),
    "IS_DATETIME": Function(is_datetime, 1, 1),
    "IS_DEFINED": Function(lambda value: value is not UNDEFINED, 1, 1),
    "IS_FINITE_NUMBER": _is(Kind.NUMBER),
    "IS_INTEGER": Function(_is_integer, 1, 1),
    "IS_NULL": _is(Kind.NULL),
    "IS_NUMBER": _is(Kind.NUMBER),
    "IS_OBJECT": _is(Kind.OBJECT),
    "IS_PRIMITIVE": _is(*_PRIMITIVES),
    "IS_STRING": _is(Kind.STRING),
}

FUNCTIONS: Mapping[str, Function] = {**ARRAYS, **DATES, **MATHEMATICAL, **STRINGS, **_TYPES}

REFUSED: Mapping[str, str] = {
    "DATETIMEFORMAT": "formats of dates",
    "FULLTEXTCONTAINS": "full-text search",
    "FULLTEXTCONTAINSALL": "full-text search",
    "FULLTEXTCONTAINSANY": "full-text search",
    "FULLTEXTSCORE": "full-text search",
    "RRF": "hybrid search",
    "ST_AREA": "geospatial data",
    "ST_DISTANCE": "geospatial data",
    "ST_INTERSECTS": "geospatial data",
    "ST_ISVALID": "geospatial data",
    "ST_ISVALIDDETAILED": "geospatial data",
    "ST_WITHIN": "geospatial data",
    "VECTORDISTANCE": "vector search",
}
"""Functions of the service that this account does not have, and what they are for."""
