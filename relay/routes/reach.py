"""Finds, for each route of an outbox, an earlier one that takes every event of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from relay.routes.conditions import Condition, Scalar
from relay.routes.selection import Route

# A name with a value, or with the beginning of one.
_Mark = tuple[str, str, Scalar]


class Earlier:
    """The earlier routes of one outbox.

    A route that covers another one has conditions that the other one implies. Each route is filed under one of its
    conditions, the one with the fewest routes, so that few are compared with the next.
    """

    def __init__(self) -> None:
        self._of_every_event: int | None = None
        self._filed: defaultdict[_Mark, list[tuple[int, Route]]] = defaultdict(list)
        self._lengths: defaultdict[str, set[int]] = defaultdict(set)

    def add(self, number: int, route: Route) -> None:
        """Add the route at this place of the file, behind those that were added."""
        if not route.when:
            self._of_every_event = number if self._of_every_event is None else self._of_every_event
            return
        marks = min((_marks(each) for each in route.when), key=self._crowd)
        for each in marks:
            self._filed[each].append((number, route))
            if each[0] == _PREFIX:
                self._lengths[each[1]].add(len(str(each[2])))

    def covering(self, route: Route) -> int | None:
        """Return the place of the first added route that takes every event of this one; None without one."""
        marks = {mark for condition in route.when for mark in self._implied(condition)}
        filed = (self._filed.get(mark, ()) for mark in marks)
        found = [number for routes in filed for number, each in routes if each.covers(route)]
        if self._of_every_event is not None:
            found.append(self._of_every_event)
        return min(found, default=None)

    def _crowd(self, marks: list[_Mark]) -> int:
        return max(len(self._filed.get(each, ())) for each in marks)

    def _implied(self, condition: Condition) -> Iterator[_Mark]:
        """Yield the marks of conditions that this one may imply: those of its first value, or of its prefix."""
        first = condition.values[0] if condition.prefix is None else condition.prefix
        if condition.prefix is None:
            yield _mark(condition.name, first)
        if isinstance(first, str):
            for length in self._lengths[condition.name]:
                if length <= len(first):
                    yield _PREFIX, condition.name, first[:length]


_PREFIX, _VALUE, _BOOLEAN = "prefix", "value", "boolean"


def _marks(condition: Condition) -> list[_Mark]:
    if condition.prefix is not None:
        return [(_PREFIX, condition.name, condition.prefix)]
    return [_mark(condition.name, each) for each in condition.values]


def _mark(name: str, value: Scalar) -> _Mark:
    # In JSON, true is not 1.
    return _BOOLEAN if isinstance(value, bool) else _VALUE, name, value
