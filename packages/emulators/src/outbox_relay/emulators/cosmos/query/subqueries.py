"""Queries within expressions and FROM clauses, which may refer to the names of the query around them.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/subquery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.evaluation import Evaluator, Parameters, Scope, compile_expression, joined
from outbox_relay.emulators.cosmos.query.grouping import Grouping
from outbox_relay.emulators.cosmos.query.syntax import Expression, Name, ObjectLiteral, Query, Subquery
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, canonical

_UNNAMED = ""


def compile_subqueries(expressions: Iterable[Expression], parameters: Parameters) -> dict[int, Evaluator]:
    """Return the value of each subquery within the expressions, by its identity.

    Those within subqueries are included.

    Raises BadRequest if a parameter is missing.
    """
    compiled: dict[int, Evaluator] = {}
    for subquery in _within(expressions):
        nested = NestedQuery(subquery.query, parameters)
        worth = {"exists": nested.exists, "scalar": nested.single}
        compiled[id(subquery)] = worth.get(subquery.kind, nested.results)
    return compiled


def _within(expressions: Iterable[Expression]) -> Iterator[Subquery]:
    for expression in expressions:
        for node in expression.walk():
            if isinstance(node, Subquery):
                yield node
                query: Query | None = node.query
                while query is not None:
                    yield from _within(query.expressions)
                    query = None if query.source is None else query.source.query


class NestedQuery:
    """A subquery with its parameters, ready to run for each scope of the query around it."""

    def __init__(self, query: Query, parameters: Parameters) -> None:
        """Compile a subquery. Raises BadRequest if a parameter is missing."""
        self._query = query
        self._inputs = _inputs(query, parameters)
        self._where = None if query.where is None else compile_expression(query.where.expression, parameters)
        self._grouping = Grouping(query, parameters) if query.group_by or query.aggregates else None
        self._project = compile_expression(_selected(query), parameters)

    def results(self, scope: Scope) -> list[Any]:
        """The values that the subquery returns; undefined ones are left out, as in any query."""
        values = (self._project(each) for each in self._grouped(scope))
        found: Iterator[Any] = (value for value in values if value is not UNDEFINED)
        return list(_distinct(found) if self._query.distinct else found)

    def exists(self, scope: Scope) -> bool:
        """Return True if the subquery returns anything."""
        return bool(self.results(scope))

    def single(self, scope: Scope) -> Any:
        """Return the one value of the subquery, undefined if there is none.

        Raises BadRequest if there are several.
        """
        found = self.results(scope)
        if len(found) > 1:
            raise BadRequest("The cardinality of a scalar subquery result set cannot be greater than one.")
        return found[0] if found else UNDEFINED

    def _grouped(self, scope: Scope) -> Iterator[Scope]:
        matching = self._matching(scope)
        if self._grouping is None:
            return matching
        groups = self._grouping.start(scope)
        for each in matching:
            groups.add(each)
        return groups.results()

    def _matching(self, scope: Scope) -> Iterator[Scope]:
        for each in joined(scope, self._inputs):
            if self._where is None or self._where(each) is True:
                yield each


def _inputs(query: Query, parameters: Parameters) -> list[tuple[str, Evaluator]]:
    """Return the names that FROM and JOIN give, each with its values."""
    inputs: list[tuple[str, Evaluator]] = []
    if query.source is not None:
        inputs.append((query.alias or _UNNAMED, NestedQuery(query.source.query, parameters).results))
    elif query.alias is not None and query.container is not None and query.alias != query.container:
        whole = compile_expression(Name(query.container), parameters)
        inputs.append((query.alias, lambda scope: [whole(scope)]))
    joins = [(join.alias, compile_expression(join.array.expression, parameters)) for join in query.joins]
    return inputs + joins


def _selected(query: Query) -> Expression:
    if query.value is not None:
        return query.value.expression
    if not query.selects_all:
        return ObjectLiteral(tuple((column.name, column.value.expression) for column in query.columns))
    return Name(query.joins[0].alias if query.hides_item else query.alias or _UNNAMED)


def _distinct(values: Iterator[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for value in values:
        name = canonical(value)
        if name not in seen:
            seen.add(name)
            yield value
