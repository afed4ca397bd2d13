"""Queries within expressions and FROM clauses, which may refer to the names of the query around them.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/subquery.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.query.counts import count
from outbox_emulators.cosmos.query.evaluation import Evaluator, Parameters, Scope, compile_expression
from outbox_emulators.cosmos.query.grouping import Grouping
from outbox_emulators.cosmos.query.joining import joined
from outbox_emulators.cosmos.query.syntax import Expression, Name, ObjectLiteral, Query, Subquery
from outbox_emulators.cosmos.query.values import UNDEFINED, canonical, sort_key, sort_order

_UNNAMED = ""


def compile_subqueries(expressions: Iterable[Expression], parameters: Parameters) -> dict[int, Evaluator]:
    """The value of each subquery within the expressions, by its identity; those within subqueries included.

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
        """Raises BadRequest if a parameter is missing."""
        self._query = query
        self._inputs = _inputs(query, parameters)
        self._where = None if query.where is None else compile_expression(query.where.expression, parameters)
        self._grouping = Grouping(query, parameters) if query.group_by or query.aggregates else None
        self._keys = [compile_expression(key.value.expression, parameters) for key in query.order_by]
        self._project = compile_expression(_selected(query), parameters)
        self._skip = count(query.offset, parameters) or 0
        limits = (count(query.top, parameters), count(query.limit, parameters))
        self._take = min((each for each in limits if each is not None), default=None)

    def results(self, scope: Scope) -> list[Any]:
        """The values that the subquery returns; undefined ones are left out, as in any query."""
        values = (self._project(each) for each in self._sorted(scope))
        found: Iterator[Any] = (value for value in values if value is not UNDEFINED)
        if self._query.distinct:
            found = _distinct(found)
        end = None if self._take is None else self._skip + self._take
        return list(itertools.islice(found, self._skip, end))

    def exists(self, scope: Scope) -> bool:
        """Whether it returns anything."""
        return bool(self.results(scope))

    def single(self, scope: Scope) -> Any:
        """The one value that it returns, undefined if there is none. Raises BadRequest if there are several."""
        found = self.results(scope)
        if len(found) > 1:
            raise BadRequest("The cardinality of a scalar subquery result set cannot be greater than one.")
        return found[0] if found else UNDEFINED

    def _sorted(self, scope: Scope) -> Iterator[Scope]:
        matching = self._matching(scope)
        if self._grouping is not None:
            groups = self._grouping.start(scope)
            for each in matching:
                groups.add(each)
            return groups.results()
        if not self._keys:
            return matching
        return iter(sorted(matching, key=functools.cmp_to_key(self._compare)))

    def _matching(self, scope: Scope) -> Iterator[Scope]:
        for each in joined(scope, self._inputs):
            if self._where is None or self._where(each) is True:
                yield each

    def _compare(self, left: Scope, right: Scope) -> int:
        for key, evaluate in zip(self._query.order_by, self._keys, strict=True):
            if difference := sort_order(sort_key(evaluate(left)), sort_key(evaluate(right))):
                return -difference if key.descending else difference
        return 0


def _inputs(query: Query, parameters: Parameters) -> list[tuple[str, Evaluator]]:
    """The names that FROM and JOIN give, each with its values."""
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
