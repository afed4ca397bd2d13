"""Query plans: what a client requests of each partition, and how it merges the results.

The format is that of azure.cosmos._execution_context.
"""

from __future__ import annotations

from typing import Any

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.partitioning import KeyRange
from outbox_emulators.cosmos.query.evaluation import Parameters, parameter
from outbox_emulators.cosmos.query.syntax import Call, Expression, Literal, Parameter, Query, Sourced

_AGGREGATE_NAMES = {"AVG": "Average", "COUNT": "Count", "MAX": "Max", "MIN": "Min", "SUM": "Sum"}
_FILTER_SLOT = "{documentdb-formattableorderbyquery-filter}"


def plan_of(query: Query, parameters: Parameters, key_range: KeyRange | None) -> dict[str, Any]:
    """The plan, for the key range that the query names, if any. Raises BadRequest if results cannot be merged."""
    offset, limit = _number(query.offset, parameters), _number(query.limit, parameters)
    return {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": _distinct_type(query),
            "top": _number(query.top, parameters),
            "offset": offset,
            "limit": limit,
            "orderBy": ["Descending" if key.descending else "Ascending" for key in query.order_by],
            "orderByExpressions": [key.value.text for key in query.order_by],
            "groupByExpressions": [],
            "groupByAliases": [],
            "aggregates": [_AGGREGATE_NAMES[call.function] for call in query.aggregates],
            "groupByAliasToAggregateType": {},
            "rewrittenQuery": _rewritten(query, parameters),
            "hasSelectValue": query.value is not None,
            "dCountInfo": None,
            "hasNonStreamingOrderBy": False,
        },
        "queryRanges": [_range(key_range or KeyRange("", "FF"))],
    }


def _range(key_range: KeyRange) -> dict[str, Any]:
    return {"min": key_range.minimum, "max": key_range.maximum, "isMinInclusive": True, "isMaxInclusive": False}


def _rewritten(query: Query, parameters: Parameters) -> str:
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
        return ""
    expression = query.value.expression
    if not isinstance(expression, Call) or query.distinct:
        raise BadRequest(
            "A cross partition query with an aggregate has to be of the form SELECT VALUE aggregate(…)."
        )
    item = query.value.text
    if expression.function == "AVG":
        argument = item[item.index("(") :]
        item = f'{{"sum": SUM{argument}, "count": COUNT{argument}}}'
    return _clauses(f'SELECT VALUE [{{"item": {item}}}]', query, _where(query))


def _payload(query: Query) -> tuple[str, list[str]]:
    """The result's expression, and the condition under which there is a result."""
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
    """Each partition may have to return all that the client skips and keeps."""
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
