"""GROUP BY, and aggregates over everything, which is one group.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/group-by: items without a property form a group of
their own, apart from those where it is null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from outbox_emulators.cosmos.query.aggregation import Aggregate
from outbox_emulators.cosmos.query.evaluation import Parameters, Scope, compile_expression
from outbox_emulators.cosmos.query.syntax import Query
from outbox_emulators.cosmos.query.values import UNDEFINED, canonical


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
