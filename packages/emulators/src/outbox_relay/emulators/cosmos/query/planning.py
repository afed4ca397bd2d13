"""Query plans: what a client requests of each partition, and how it merges the results.

The format is that of azure.cosmos._execution_context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.partitioning import KeyRange
from outbox_relay.emulators.cosmos.query.evaluation import Parameters, parameter
from outbox_relay.emulators.cosmos.query.syntax import Call, Expression, Literal, Parameter, Query, Sourced

_AGGREGATE_NAMES = {
    "AVG": "Average",
    "COUNT": "Count",
    "MAKELIST": "MakeList",
    "MAKESET": "MakeSet",
    "MAX": "Max",
    "MIN": "Min",
    "SUM": "Sum",
}

_FILTER_SLOT = "{documentdb-formattableorderbyquery-filter}"


def plan_of(query: Query, parameters: Parameters, key_range: KeyRange | None) -> dict[str, Any]:
    """Return the plan, for the key range that the query names, if any.

    Raises BadRequest if results cannot be merged.
    """
    if query.counts_distinct:
        return _plan_of_distinct_count(query, parameters, key_range)
    if query.sorts_groups:
        # Only where there is one physical partition: nothing is merged.
        query = Query(query.alias, query.from_text)
    if query.distinct and query.aggregates and not query.group_by:
        # There is one result, which DISTINCT leaves as it is.
        query = replace(query, distinct=False)
    offset, limit = _number(query.offset, parameters), _number(query.limit, parameters)
    aggregates = query.aggregates
    # Those that have names are merged by name.
    named = {} if query.value is not None else _aggregates_by_name(query)
    grouped = bool(query.group_by) or any(named.values())
    return {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": _distinct_type(query),
            "top": _number(query.top, parameters),
            "offset": offset,
            "limit": limit,
            "orderBy": ["Descending" if key.descending else "Ascending" for key in query.order_by],
            "orderByExpressions": [key.value.text for key in query.order_by],
            "groupByExpressions": [source.text for source in query.group_by],
            "groupByAliases": list(named) if grouped else [],
            "aggregates": [] if query.value is None else [_AGGREGATE_NAMES[call.function] for call in aggregates],
            "groupByAliasToAggregateType": named if grouped else {},
            "rewrittenQuery": _rewritten(query, parameters),
            "hasSelectValue": query.value is not None,
            "dCountInfo": None,
            "hasNonStreamingOrderBy": False,
        },
        "queryRanges": [_range(key_range or KeyRange("", "FF"))],
    }


def _plan_of_distinct_count(query: Query, parameters: Parameters, key_range: KeyRange | None) -> dict[str, Any]:
    """Return the subquery's plan.

    A client counts the distinct values that it has merged (DCountInfo.cs of .NET).
    """
    assert query.source is not None
    plan = plan_of(query.source.query, parameters, key_range)
    alias = "" if query.value is not None else query.columns[0].name
    plan["queryInfo"] |= {"dCountInfo": {"dCountAlias": alias}, "rewrittenQuery": query.source.text}
    return plan


def check_mergeable(query: Query) -> None:
    """Raise BadRequest for a query of which a client cannot merge the results of several partitions."""
    if query.sorts_groups:
        raise BadRequest("'ORDER BY' is not supported with 'GROUP BY' across physical partitions.")
    if query.source is not None and query.source.query.needs_merging and not query.counts_distinct:
        raise BadRequest(
            "A subquery in FROM with an aggregate, DISTINCT or GROUP BY cannot be served across "
            " physical partitions. Give the query a partition key."
        )


def _aggregates_by_name(query: Query) -> dict[str, str | None]:
    return {column.name: _aggregate_name(column.value.expression) for column in query.columns}


def _aggregate_name(expression: Expression) -> str | None:
    """Return the name of an aggregate, or None for another expression.

    Raises BadRequest for an aggregate within one.
    """
    if isinstance(expression, Call) and expression.is_aggregate:
        return _AGGREGATE_NAMES[expression.function]
    if any(isinstance(node, Call) and node.is_aggregate for node in expression.walk()):
        raise BadRequest("Compositions of aggregates and other expressions are not allowed.")
    return None


def _range(key_range: KeyRange) -> dict[str, Any]:
    return {"min": key_range.minimum, "max": key_range.maximum, "isMinInclusive": True, "isMaxInclusive": False}


def _rewritten(query: Query, parameters: Parameters) -> str:
    if query.group_by:
        return _rewritten_groups(query)
    if query.aggregates:
        return _rewritten_aggregate(query)
    if query.order_by:
        return _rewritten_sort(query, parameters)
    if query.offset is None:
        return ""
    return _clauses(f"SELECT {_head(query)}{_selection(query)}", query, _where(query), _page(query, parameters))


def _rewritten_sort(query: Query, parameters: Parameters) -> str:
    items = ", ".join(f'{{"item": {key.value.text}}}' for key in query.order_by)
    payload, condition = _payload(query)
    where = " AND ".join(f"({part})" for part in (*_conditions(query), *condition, _FILTER_SLOT))
    keys = ", ".join(f"{key.value.text} {'DESC' if key.descending else 'ASC'}" for key in query.order_by)
    selection = f"{query.alias}._rid, [{items}] AS orderByItems, {payload} AS payload"
    if query.distinct:
        # Results differ by their _rid here: the client has to find the distinct ones before it counts them.
        return _clauses(f"SELECT {selection}", query, f"WHERE {where}", f"ORDER BY {keys}")
    return _clauses(
        f"SELECT {_head(query)}{selection}", query, f"WHERE {where}", f"ORDER BY {keys}", _page(query, parameters)
    )


def _rewritten_aggregate(query: Query) -> str:
    if query.value is None:
        return _clauses(f"SELECT {_group_payload(query)} AS payload", query, _where(query))
    return _clauses(f"SELECT VALUE {_group_payload(query)}", query, _where(query))


def _rewritten_groups(query: Query) -> str:
    """Return the query for a partition's groups.

    Each partition returns its groups whole: TOP, OFFSET, LIMIT and DISTINCT are for those that were merged.
    """
    items = ", ".join(f'{{"item": {source.text}}}' for source in query.group_by)
    grouping = f"GROUP BY {', '.join(source.text for source in query.group_by)}"
    selection = f"[{items}] AS groupByItems, {_group_payload(query)} AS payload"
    return _clauses(f"SELECT {selection}", query, _where(query), grouping)


def _group_payload(query: Query) -> str:
    if query.value is not None:
        is_aggregate = _aggregate_name(query.value.expression) is not None
        return f"[{_mergeable(query.value)}]" if is_aggregate else query.value.text
    members = ", ".join(f"{_quoted(column.name)}: {_mergeable(column.value)}" for column in query.columns)
    return f"{{{members}}}"


def _mergeable(source: Sourced) -> str:
    """Return an expression of which a client can merge the values of several partitions.

    MIN and MAX come with a count, so that a client can tell a partition that has no value from one with null.
    """
    if _aggregate_name(source.expression) is None:
        return source.text
    item = source.text
    argument = item[item.index("(") :]
    match source.expression:
        case Call("AVG"):
            return f'{{"item": {{"sum": SUM{argument}, "count": COUNT{argument}}}}}'
        case Call("MIN" | "MAX" as function):
            return f'{{"item": {item}, "item2": {{"{function.lower()}": {item}, "count": COUNT{argument}}}}}'
    return f'{{"item": {item}}}'


def _payload(query: Query) -> tuple[str, list[str]]:
    """Return the result's expression, and the condition under which there is a result."""
    if query.selects_all:
        return str(query.alias), []
    if query.value is not None:
        return query.value.text, [f"IS_DEFINED({query.value.text})"]
    members = ", ".join(f"{_quoted(column.name)}: {column.value.text}" for column in query.columns)
    return f"{{{members}}}", []


def _selection(query: Query) -> str:
    if query.selects_all:
        return "*"
    if query.value is not None:
        return f"VALUE {query.value.text}"
    return ", ".join(f"{column.value.text} AS {column.name}" for column in query.columns)


def _head(query: Query) -> str:
    distinct = "DISTINCT " if query.distinct else ""
    return distinct if query.top is None else f"{distinct}TOP {_count_text(query.top)} "


def _clauses(select: str, query: Query, *rest: str) -> str:
    return " ".join(part for part in (select, query.from_text, *rest) if part)


def _where(query: Query) -> str:
    return f"WHERE {query.where.text}" if query.where else ""


def _conditions(query: Query) -> list[str]:
    where: Sourced | None = query.where
    return [] if where is None else [where.text]


def _page(query: Query, parameters: Parameters) -> str:
    """Return the clause that limits a page, or "" for none.

    Each partition may have to return all that the client skips and keeps.
    """
    offset, limit = _number(query.offset, parameters), _number(query.limit, parameters)
    return "" if offset is None or limit is None else f"OFFSET 0 LIMIT {offset + limit}"


def _distinct_type(query: Query) -> str:
    if not query.distinct:
        return "None"
    return "Ordered" if _sorts_by_all_it_selects(query) else "Unordered"


def _sorts_by_all_it_selects(query: Query) -> bool:
    selected = [column.value for column in query.columns] if query.value is None else [query.value]
    sorted_by = {key.value.expression for key in query.order_by}
    return bool(selected) and all(source.expression in sorted_by for source in selected)


def _number(expression: Expression | None, parameters: Parameters) -> int | None:
    match expression:
        case Literal(int() as value):
            return value
        case Parameter(name):
            value = parameter(name, parameters)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            raise BadRequest(f"The value of {name} has to be a whole number.")
    return None


def _count_text(expression: Expression) -> str:
    return expression.name if isinstance(expression, Parameter) else str(getattr(expression, "value", ""))


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
