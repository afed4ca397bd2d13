"""Properties of a query that are known without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_relay.emulators.cosmos.container_definition import composite_indexes
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.evaluation import Parameters, parameter
from outbox_relay.emulators.cosmos.query.syntax import (
    Binary,
    Expression,
    Literal,
    Logical,
    Parameter,
    Query,
)

Path = tuple[str, ...]


def required_values(query: Query, parameters: Parameters) -> dict[Path, Any]:
    """Return the properties that must equal a given value for an item to match.

    They come from the AND-ed parts of WHERE.
    """
    if query.where is None or query.source is not None or query.hides_item:
        return {}
    required = {}
    for part in _conjuncts(query.where.expression):
        if isinstance(part, Binary) and part.operator == "=":
            for one, other in ((part.left, part.right), (part.right, part.left)):
                path = query.property_path(one)
                if path and isinstance(other, Literal):
                    required[path] = other.value
                elif path and isinstance(other, Parameter):
                    required[path] = parameter(other.name, parameters)
    return required


def check_sortable(query: Query, definition: Mapping[str, Any]) -> None:
    """Raise BadRequest, as the service does, if the indexing policy does not support this ORDER BY.

    Source: https://learn.microsoft.com/azure/cosmos-db/index-policy#composite-indexes.
    """
    if query.source is not None or len(query.order_by) < 2:
        return
    paths = [query.property_path(key.value.expression) or () for key in query.order_by]
    wanted = [("/" + "/".join(path), key.descending) for path, key in zip(paths, query.order_by, strict=True)]
    reverse = [(path, not descending) for path, descending in wanted]
    if not any(index in (wanted, reverse) for index in composite_indexes(definition)):
        raise BadRequest(
            "The order by query does not have a corresponding composite index that it can be served from."
        )


def _conjuncts(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Logical) and expression.operator == "AND":
        for operand in expression.operands:
            yield from _conjuncts(operand)
    else:
        yield expression
