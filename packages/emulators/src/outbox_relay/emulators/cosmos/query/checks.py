"""Checks of queries that the grammar allows and the service refuses."""

from __future__ import annotations

from collections.abc import Collection

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.syntax import (
    ArrayLiteral,
    Call,
    Expression,
    Literal,
    Member,
    Name,
    Parameter,
    Query,
    Sourced,
    Subquery,
)

_MOST_JOINS = 10
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits#sql-query-limits"""


def check_query(query: Query, around: frozenset[str] | None = None) -> None:
    """Raise BadRequest for what cannot be resolved, or cannot stand together.

    `around` has the names of the query that this one is a subquery of.
    """
    if query.selects_all:
        _check_everything(query)
    if len(query.joins) > _MOST_JOINS:
        raise BadRequest(f"The query has {len(query.joins)} JOINs; the limit is {_MOST_JOINS}.")
    _check_names(query, around)
    filters = [key.value for key in query.order_by] + [*query.group_by, *([query.where] if query.where else [])]
    for source in filters:
        check_no_aggregate(source.expression)
    for aggregate in query.aggregates:
        for argument in aggregate.arguments:
            check_no_aggregate(argument)
    if query.group_by or query.aggregates:
        grouped = [source.expression for source in query.group_by]
        for source in [*query.selected, *(key.value for key in query.order_by)]:
            _check_grouped(source.expression, grouped, around or frozenset())
    _check_sort_keys(query)


def check_no_aggregate(expression: Expression) -> None:
    """Raise BadRequest if there is an aggregate in an expression of one item."""
    if any(isinstance(node, Call) and node.is_aggregate for node in expression.walk()):
        raise BadRequest("An aggregate is only allowed in the SELECT clause, and not within another.")


def _check_everything(query: Query) -> None:
    if not query.has_from:
        raise BadRequest("Syntax error: 'SELECT *' needs a FROM clause.")
    if query.group_by:
        raise BadRequest("'SELECT *' is not allowed with GROUP BY.")
    if len(query.joins) > query.hides_item:
        raise BadRequest("'SELECT *' is only valid with a single input set.")


def _check_names(query: Query, around: frozenset[str] | None) -> None:
    outer = around or frozenset()
    if query.source is not None:
        _check_nested(query.source.query)
        check_query(query.source.query, around)
    elif around is not None and query.container is not None and query.container not in outer:
        raise BadRequest(f"Identifier '{query.container}' could not be resolved.")
    own = {query.alias} if query.alias is not None else set()
    for number, join in enumerate(query.joins):
        _resolve(join.array, outer | own)
        if number == 0 and query.hides_item:
            own = set()
        if join.alias in own:
            raise BadRequest(f"The input alias '{join.alias}' is specified more than once in the FROM clause.")
        own.add(join.alias)
    sources = [key.value for key in query.order_by] + [*query.group_by, *query.selected]
    for source in [*sources, *([query.where] if query.where else [])]:
        _resolve(source, outer | own)


def _resolve(source: Sourced, known: frozenset[str]) -> None:
    for node in source.expression.walk():
        if isinstance(node, Name) and node.name not in known:
            raise BadRequest(f"Identifier '{node.name}' could not be resolved.")
        if isinstance(node, Member) and not isinstance(node.key, Literal | Parameter):
            raise BadRequest("SC2990, The index of a member has to be a literal or a parameter.")
        if isinstance(node, Subquery):
            _check_nested(node.query)
            check_query(node.query, known)


def _check_nested(query: Query) -> None:
    """Raise BadRequest for the clauses that no subquery may have.

    With the service's codes, as the baselines of azure-cosmos-dotnet-v3 have them (LinqGeneralBaselineTests).
    """
    clauses = {
        "SC2202, 'ORDER BY'": query.order_by,
        "SC2203, 'TOP'": query.top,
        "SC2204, 'OFFSET LIMIT'": query.offset,
    }
    for clause, given in clauses.items():
        if given:
            raise BadRequest(f"{clause} is not supported in subqueries.")


def _check_grouped(expression: Expression, grouped: Collection[Expression], around: frozenset[str]) -> None:
    """Check that every property is grouped by, within an aggregate, or of the query around this one."""
    if expression in grouped or (isinstance(expression, Call) and expression.is_aggregate):
        return
    if isinstance(expression, Name) and expression.name not in around:
        raise BadRequest(
            f"Property reference '{expression.name}' is invalid in the select list because it is not contained in "
            "either an aggregate function or the GROUP BY clause."
        )
    for child in expression.children():
        _check_grouped(child, grouped, around)


def _check_sort_keys(query: Query) -> None:
    """Raise BadRequest, in the service's words, unless ORDER BY only has properties of the container's items.

    Sources in azure-cosmos-dotnet-v3: OrderByQueryTests.cs (TestBadOrderByQueriesAsync), and the baselines of
    QueryPlanBaselineTests and LinqGeneralBaselineTests, which tell the elements of an array from what is computed.
    """
    if query.source is not None:
        return
    keys = [key.value.expression for key in query.order_by]
    others = [key for key in keys if query.hides_item or not query.property_path(key)]
    if not all(_is_in_joined_array(key, query) for key in others):
        raise BadRequest(
            "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."
        )
    if others:
        raise BadRequest("Order-by over correlated collections is not supported.")


def _is_in_joined_array(key: Expression, query: Query) -> bool:
    """Return True for an element of an array that is joined, or a member of one."""
    while isinstance(key, Member):
        key = key.of
    return any(Name(join.alias) == key and not _is_computed(join.array.expression) for join in query.joins)


def _is_computed(joined: Expression) -> bool:
    match joined:
        case Subquery(_, Query(value=Sourced(Name() | Member()))):
            return False
    return isinstance(joined, Subquery | ArrayLiteral)
