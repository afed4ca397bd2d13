"""Functions of arrays and sets, and those that choose among values."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

from outbox_relay.emulators.cosmos.query.functions.definitions import (
    MANY,
    Function,
    as_number,
    check_size,
    integer_of,
    of_kinds,
)
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, Kind, canonical, kind_of, same, sort_order

_SCALARS = (Kind.NULL, Kind.BOOLEAN, Kind.NUMBER, Kind.STRING)


def _concat(*arrays: Any) -> Any:
    if any(kind_of(array) is not Kind.ARRAY for array in arrays):
        return UNDEFINED
    check_size(sum(map(len, arrays)))
    return [element for array in arrays for element in array]


def _contains(array: Any, wanted: Any, partial: Any = False) -> Any:
    if kind_of(array) is not Kind.ARRAY or wanted is UNDEFINED:
        return UNDEFINED
    if partial and isinstance(wanted, dict):
        return any(_holds_all_of(element, wanted) for element in array)
    return any(same(element, wanted) for element in array)


def _holds_all_of(element: Any, wanted: dict[str, Any]) -> bool:
    return isinstance(element, dict) and all(
        key in element and same(element[key], value) for key, value in wanted.items()
    )


def _contains_several(*, decisive: bool) -> Function:
    """ARRAY_CONTAINS of each, combined with OR (`decisive` true) or AND: undefined unless one decides."""

    def checked(array: Any, *wanted: Any) -> Any:
        found = [_contains(array, each) for each in wanted]
        if decisive in found:
            return decisive
        return UNDEFINED if UNDEFINED in found else not decisive

    return Function(checked, 2, MANY)


def _slice(array: list[Any], start: float, length: float | None = None) -> list[Any]:
    first = int(start) if start >= 0 else max(0, len(array) + int(start))
    return array[first:] if length is None else array[first : first + max(0, int(length))]


def _of_numbers(call: Callable[[list[float]], Any]) -> Function:
    """Return a function of an array that has numbers alone."""

    def checked(array: list[Any]) -> Any:
        if not array or any(kind_of(element) is not Kind.NUMBER for element in array):
            return UNDEFINED
        return as_number(call(array))

    return of_kinds(checked, Kind.ARRAY)


def _extreme(sign: int) -> Function:
    """Return a function for the greatest (sign 1) or least (-1) element, where all are scalars."""

    def checked(array: list[Any]) -> Any:
        if not array or any(kind_of(element) not in _SCALARS for element in array):
            return UNDEFINED
        return max(array, key=functools.cmp_to_key(lambda left, right: sign * sort_order(left, right)))

    return of_kinds(checked, Kind.ARRAY)


def _choose(index: Any, *values: Any) -> Any:
    number = integer_of(index)
    return values[number - 1] if number is not None and 1 <= number <= len(values) else UNDEFINED


def _object_to_array(value: dict[str, Any], key: str = "k", content: str = "v") -> list[Any]:
    return [{key: name, content: member} for name, member in value.items()]


def _distinct(array: list[Any]) -> dict[str, Any]:
    """Return the elements once each, in the order of their first places, by a text that equal ones share."""
    found: dict[str, Any] = {}
    for element in array:
        found.setdefault(canonical(element), element)
    return found


def _sets(call: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Function:
    return of_kinds(lambda left, right: call(_distinct(left), _distinct(right)), Kind.ARRAY, Kind.ARRAY)


ARRAYS: dict[str, Function] = {
    "ARRAY_AVG": _of_numbers(lambda array: sum(array) / len(array)),
    "ARRAY_CONCAT": Function(_concat, 2, MANY),
    "ARRAY_CONTAINS": Function(_contains, 2, 3),
    "ARRAY_CONTAINS_ALL": _contains_several(decisive=False),
    "ARRAY_CONTAINS_ANY": _contains_several(decisive=True),
    "ARRAY_LENGTH": of_kinds(len, Kind.ARRAY),
    "ARRAY_MAX": _extreme(1),
    "ARRAY_MEDIAN": _of_numbers(statistics.median),
    "ARRAY_MIN": _extreme(-1),
    "ARRAY_SLICE": of_kinds(_slice, Kind.ARRAY, Kind.NUMBER, Kind.NUMBER, optional=1),
    "ARRAY_SUM": _of_numbers(sum),
    "CHOOSE": Function(_choose, 2, MANY),
    "IIF": Function(lambda condition, then, otherwise: then if condition is True else otherwise, 3, 3),
    "OBJECTTOARRAY": of_kinds(_object_to_array, Kind.OBJECT, Kind.STRING, Kind.STRING, optional=2),
    "SETDIFFERENCE": _sets(lambda left, right: [left[name] for name in left if name not in right]),
    "SETEQUAL": _sets(lambda left, right: left.keys() == right.keys()),
    "SETINTERSECT": _sets(lambda left, right: [left[name] for name in left if name in right]),
    "SETUNION": _sets(lambda left, right: list((left | right).values())),
}
