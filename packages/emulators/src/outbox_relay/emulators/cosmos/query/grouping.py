"""GROUP BY, and aggregates over everything, which is one group.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/group-by: items without a property form a group of
their own, apart from those where it is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from outbox_relay.emulators.cosmos.query.evaluation import Evaluator, Parameters, Scope, compile_expression
from outbox_relay.emulators.cosmos.query.syntax import Call, Query
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, Kind, canonical, kind_of, sort_order


class Aggregate:
    """The running state of an aggregate."""

    def __init__(self, call: Call, parameters: Parameters) -> None:
        self.call = call
        self._argument: Evaluator = compile_expression(call.arguments[0], parameters)
        self._count = 0
        self._sum: Any = 0
        self._extreme: Any = UNDEFINED
        self._has_complex = False
        self._values: list[Any] = []
        self._seen: set[str] = set()

    def add(self, scope: Scope) -> None:
        value = self._argument(scope)
        if value is UNDEFINED:
            return
        self._count += 1
        if self.call.function in ("SUM", "AVG"):
            numeric = kind_of(value) is Kind.NUMBER and self._sum is not UNDEFINED
            self._sum = self._sum + value if numeric else UNDEFINED
        elif self.call.function in ("MIN", "MAX"):
            self._consider(value)
        elif self.call.function == "MAKELIST":
            self._values.append(value)
        elif self.call.function == "MAKESET" and (name := canonical(value)) not in self._seen:
            self._seen.add(name)
            self._values.append(value)

    def result(self) -> Any:
        match self.call.function:
            case "COUNT":
                return self._count
            case "SUM":
                return self._sum
            case "AVG":
                return UNDEFINED if self._sum is UNDEFINED or not self._count else self._sum / self._count
            case "MAKELIST" | "MAKESET":
                return self._values
        return UNDEFINED if self._has_complex else self._extreme

    def _consider(self, value: Any) -> None:
        self._has_complex = self._has_complex or isinstance(value, list | dict)
        if self._extreme is UNDEFINED:
            self._extreme = value
            return
        order = sort_order(value, self._extreme)
        if order < 0 if self.call.function == "MIN" else order > 0:
            self._extreme = value


class Grouping:
    """The grouping and the aggregates of a query. Raises BadRequest if a parameter is missing."""

    def __init__(self, query: Query, parameters: Parameters) -> None:
        self._calls = query.aggregates
        self._parameters = parameters
        self.keys = [compile_expression(source.expression, parameters) for source in query.group_by]

    def start(self, around: Scope | None = None) -> Groups:
        """Start without groups; `around` is the scope of the query that this one is a subquery of."""
        return Groups(self, around or Scope())

    def aggregates(self) -> list[Aggregate]:
        """Return the aggregates of a new group."""
        return [Aggregate(call, self._parameters) for call in self._calls]


class Groups:
    """The groups found so far, in the order of their first items."""

    def __init__(self, grouping: Grouping, around: Scope) -> None:
        self._grouping = grouping
        self._groups: dict[tuple[str, ...], tuple[Scope, list[Aggregate]]] = {}
        if not grouping.keys:
            # Aggregates without GROUP BY have a result even if nothing matches.
            self._groups[()] = around, grouping.aggregates()

    def add(self, scope: Scope) -> None:
        values = (key(scope) for key in self._grouping.keys)
        name = tuple("" if value is UNDEFINED else canonical(value) for value in values)
        if name not in self._groups:
            self._groups[name] = scope, self._grouping.aggregates()
        for aggregate in self._groups[name][1]:
            aggregate.add(scope)

    def results(self) -> Iterator[Scope]:
        """Yield the first item of each group, with the group's aggregates."""
        for scope, aggregates in self._groups.values():
            yield replace(scope, aggregates={aggregate.call: aggregate.result() for aggregate in aggregates})
