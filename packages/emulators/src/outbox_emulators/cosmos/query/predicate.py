"""The condition of a conditional patch: `FROM c WHERE …`."""

from __future__ import annotations

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.query.checks import check_no_aggregate
from outbox_emulators.cosmos.query.evaluation import Scope, compile_expression
from outbox_emulators.cosmos.query.parsing import parse_condition
from outbox_emulators.cosmos.query.subqueries import compile_subqueries
from outbox_emulators.cosmos.query.values import load


def condition_holds(condition: object, document: str) -> bool:
    """Return True if a document meets the condition. Raises BadRequest if it is not a condition."""
    if not isinstance(condition, str):
        raise BadRequest("A patch's condition has to be a string.")
    _, expression = parse_condition(condition)
    check_no_aggregate(expression)
    scope = Scope(load(document), subqueries=compile_subqueries([expression], {}))
    return compile_expression(expression, {})(scope) is True
