"""The numbers after TOP, OFFSET and LIMIT."""

from __future__ import annotations

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.query.evaluation import Parameters, parameter
from outbox_emulators.cosmos.query.syntax import Expression, Literal, Parameter


def count(expression: Expression | None, parameters: Parameters) -> int | None:
    """Return the number, or None if there is none. Raises BadRequest if it is not a count."""
    match expression:
        case None:
            return None
        case Literal(value):
            number = value
        case Parameter(name):
            number = parameter(name, parameters)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadRequest(f"TOP, OFFSET and LIMIT need a whole number that is not negative, not '{number}'.")
    return number
