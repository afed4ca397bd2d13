"""From syntax to functions of an item."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.functions import FUNCTIONS, Function
from outbox_relay.emulators.cosmos.query.functions.definitions import sized, within_64_bits
from outbox_relay.emulators.cosmos.query.syntax import (
    ArrayLiteral,
    Between,
    Binary,
    Call,
    Conditional,
    Expression,
    In,
    Like,
    Literal,
    Logical,
    Member,
    Name,
    ObjectLiteral,
    Parameter,
    Subquery,
    Unary,
)
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, Kind, equal, kind_of, order
from outbox_relay.emulators.patterns import InvalidPatternError, Pattern, PatternTooLargeError, like_pattern

Parameters = Mapping[str, Any]


Evaluator = Callable[["Scope"], Any]

_MOST_ELEMENTS = 500_000


class Budget:
    """How many elements of arrays one page of a query may still join."""

    def __init__(self) -> None:
        self._left = _MOST_ELEMENTS

    def spend(self) -> None:
        """Count one element. Raises BadRequest if there were too many."""
        self._left -= 1
        if self._left < 0:
            raise BadRequest(
                f"For one page, the query joins items with more than {_MOST_ELEMENTS} elements of arrays; the "
                "emulator serves no more. Ask for smaller pages, or filter before the JOIN."
            )


@dataclass(slots=True)
class Scope:
    """The subject of an expression: an item, or the aggregates of many."""

    item: Any = UNDEFINED
    joined: dict[str, Any] = field(default_factory=dict)
    """The elements of arrays, by the names that JOIN gives them."""
    aggregates: dict[Call, Any] = field(default_factory=dict)
    moment: int = 0
    """The time of the query, in ticks of 100 ns since 1970."""
    subqueries: Mapping[int, Evaluator] = field(default_factory=dict)
    """The value of each subquery of the query, by the identity of its expression."""
    budget: Budget = field(default_factory=Budget)


def compile_expression(expression: Expression, parameters: Parameters) -> Evaluator:
    """Return a function that returns the expression's value. Raises BadRequest if a parameter is missing."""
    match expression:
        case Literal(value):
            return lambda scope: value
        case Parameter(name):
            bound = parameter(name, parameters)
            return lambda scope: bound
        case Name(alias):
            return lambda scope: scope.joined.get(alias, scope.item)
        case Call() if expression.is_aggregate:
            return lambda scope: scope.aggregates[expression]
        case Subquery():
            return lambda scope: sized(scope.subqueries[id(expression)](scope))
        case In(needle, choices) if all(isinstance(choice, Literal | Parameter) for choice in choices):
            constants = [compile_expression(choice, parameters)(Scope()) for choice in choices]
            return _in_constants(compile_expression(needle, parameters), constants)
    children = [compile_expression(child, parameters) for child in expression.children()]
    return _combine(expression, children)


def parameter(name: str, parameters: Parameters) -> Any:
    """Return a parameter. Raises BadRequest if the query was sent without it."""
    if name not in parameters:
        raise BadRequest(f"Parameter '{name}' is used in the query but was not given a value.")
    return parameters[name]


def _combine(expression: Expression, children: Sequence[Evaluator]) -> Evaluator:
    match expression:
        case Member():
            return _member(*children)
        case Unary(symbol):
            return _unary(symbol, children[0])
        case Binary(symbol):
            return _binary(symbol, *children)
        case Logical(symbol):
            return _logical(children, decisive=symbol == "OR")
        case Conditional():
            condition, then, otherwise = children
            return lambda scope: then(scope) if condition(scope) is True else otherwise(scope)
        case In():
            return _in(children[0], children[1:])
        case Between():
            return _between(*children)
        case Like(escape=escape):
            return _like(children[0], children[1], escape)
        case Call(name):
            return _call(FUNCTIONS[name], children)
        case ObjectLiteral(members):
            return _object([key for key, _ in members], children)
        case ArrayLiteral():
            return lambda scope: sized([value for child in children if (value := child(scope)) is not UNDEFINED])
    raise BadRequest(f"{type(expression).__name__} is not supported in a query.")


def _call(function: Function, arguments: Sequence[Evaluator]) -> Evaluator:
    call = function.call
    if function.needs_moment:
        return lambda scope: call(scope.moment, *[argument(scope) for argument in arguments])
    return lambda scope: call(*[argument(scope) for argument in arguments])


def _member(of: Evaluator, key: Evaluator) -> Evaluator:
    def evaluate(scope: Scope) -> Any:
        container, name = of(scope), key(scope)
        if isinstance(container, dict) and isinstance(name, str):
            return container.get(name, UNDEFINED)
        if isinstance(container, list) and isinstance(name, int) and 0 <= name < len(container):
            return container[name]
        return UNDEFINED

    return evaluate


def _unary(symbol: str, operand: Evaluator) -> Evaluator:
    def negate(scope: Scope) -> Any:
        value = operand(scope)
        return not value if isinstance(value, bool) else UNDEFINED

    def signed(scope: Scope) -> Any:
        value = operand(scope)
        if kind_of(value) is not Kind.NUMBER:
            return UNDEFINED
        return -value if symbol == "-" else value

    def complement(scope: Scope) -> Any:
        value = operand(scope)
        return ~_int32(value) if kind_of(value) is Kind.NUMBER else UNDEFINED

    return {"NOT": negate, "~": complement}.get(symbol, signed)


def _binary(symbol: str, left: Evaluator, right: Evaluator) -> Evaluator:
    match symbol:
        case "??":
            return lambda scope: right(scope) if (value := left(scope)) is UNDEFINED else value
        case "=":
            return lambda scope: equal(left(scope), right(scope))
        case "!=":
            return lambda scope: _not(equal(left(scope), right(scope)))
        case "||":
            return lambda scope: FUNCTIONS["CONCAT"].call(left(scope), right(scope))
        case "<" | "<=" | ">" | ">=":
            return _compare(_COMPARISONS[symbol], left, right)
    return _arithmetic(_ARITHMETIC[symbol], left, right)


def _not(value: Any) -> Any:
    return UNDEFINED if value is UNDEFINED else not value


def _logical(operands: Sequence[Evaluator], *, decisive: bool) -> Evaluator:
    """Evaluate three-valued AND and OR: one operand may decide even if another is undefined."""

    def evaluate(scope: Scope) -> Any:
        certain = True
        for operand in operands:
            value = operand(scope)
            if value is decisive:
                return decisive
            certain = certain and isinstance(value, bool)
        return not decisive if certain else UNDEFINED

    return evaluate


def _compare(test: Callable[[int, int], bool], left: Evaluator, right: Evaluator) -> Evaluator:
    def evaluate(scope: Scope) -> Any:
        result = order(left(scope), right(scope))
        return test(result, 0) if isinstance(result, int) else UNDEFINED

    return evaluate


def _arithmetic(function: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    def evaluate(scope: Scope) -> Any:
        first, second = left(scope), right(scope)
        if kind_of(first) is not Kind.NUMBER or kind_of(second) is not Kind.NUMBER:
            return UNDEFINED
        try:
            return within_64_bits(function(first, second))
        except (ValueError, ZeroDivisionError, OverflowError):
            return UNDEFINED

    return evaluate


def _in(needle: Evaluator, choices: Sequence[Evaluator]) -> Evaluator:
    def evaluate(scope: Scope) -> Any:
        value = needle(scope)
        if value is UNDEFINED:
            return UNDEFINED
        return any(equal(value, choice(scope)) is True for choice in choices)

    return evaluate


def _in_constants(needle: Evaluator, constants: Sequence[Any]) -> Evaluator:
    """IN as a look-up: clients send lists of a thousand."""
    scalars = {(kind_of(value), value) for value in constants if not isinstance(value, list | dict)}
    others = [value for value in constants if isinstance(value, list | dict)]

    def evaluate(scope: Scope) -> Any:
        value = needle(scope)
        if value is UNDEFINED:
            return UNDEFINED
        if isinstance(value, list | dict):
            return any(equal(value, other) is True for other in others)
        return (kind_of(value), value) in scalars

    return evaluate


def _between(value: Evaluator, low: Evaluator, high: Evaluator) -> Evaluator:
    return _logical([_compare(operator.ge, value, low), _compare(operator.le, value, high)], decisive=False)


def _like(value: Evaluator, pattern: Evaluator, escape: str | None) -> Evaluator:
    compiled: dict[str, Pattern] = {}

    def evaluate(scope: Scope) -> Any:
        text, wanted = value(scope), pattern(scope)
        if not isinstance(text, str) or not isinstance(wanted, str):
            return UNDEFINED
        if wanted not in compiled:
            compiled[wanted] = _pattern(wanted, escape)
        try:
            return compiled[wanted].is_all_of(text)
        except PatternTooLargeError as error:
            raise BadRequest(str(error)) from error

    return evaluate


def _pattern(pattern: str, escape: str | None) -> Pattern:
    """`%` any characters, `_` one, `[a-z]` and `[^a-z]` one of (not of) these."""
    parts: list[str | None] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        end = pattern.find("]", position + 1) if character == "[" else -1
        if character == escape and position < len(pattern):
            parts.append(re.escape(pattern[position]))
            position += 1
        elif character == "%":
            parts.append(None)
        elif character == "_":
            parts.append(".")
        elif end != -1:
            parts.append(f"[{pattern[position:end].replace(chr(92), chr(92) * 2)}]")
            position = end + 1
        else:
            parts.append(re.escape(character))
    try:
        return like_pattern(parts)
    except InvalidPatternError as error:
        raise BadRequest(f"The LIKE pattern '{pattern}' is invalid: {error}.") from error
    except PatternTooLargeError as error:
        raise BadRequest(str(error)) from error


def _object(keys: Sequence[str], values: Sequence[Evaluator]) -> Evaluator:
    def evaluate(scope: Scope) -> Any:
        result = {}
        for key, value in zip(keys, values, strict=True):
            if (member := value(scope)) is not UNDEFINED:
                result[key] = member
        return sized(result)

    return evaluate


def _int32(number: float) -> int:
    """Return a number as JavaScript's bitwise operators and the service see it: 32 bits with a sign."""
    return (int(number) + (1 << 31)) % (1 << 32) - (1 << 31)


def _on_int32(function: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    return lambda left, right: _int32(function(_int32(left), _int32(right)))


def _shift_unsigned(left: Any, right: Any) -> int:
    return (_int32(left) % (1 << 32)) >> (_int32(right) % 32)


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


def _remainder(left: Any, right: Any) -> Any:
    if not right:
        return UNDEFINED
    result = math.fmod(left, right)
    return int(result) if isinstance(left, int) and isinstance(right, int) else result


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
    "&": _on_int32(operator.and_),
    "|": _on_int32(operator.or_),
    "^": _on_int32(operator.xor),
    "<<": _on_int32(lambda left, right: left << right % 32),
    ">>": _on_int32(lambda left, right: left >> right % 32),
    ">>>": _shift_unsigned,
}


def joined(scope: Scope, joins: Sequence[tuple[str, Evaluator]]) -> Iterator[Scope]:
    """Yield the scope once for each combination of elements. Each join may refer to the names of those before it.

    What is no array, or has no elements, gives nothing
    (https://learn.microsoft.com/azure/cosmos-db/nosql/query/join). Raises BadRequest if there are too many.
    """
    if not joins:
        yield scope
        return
    (alias, array), *others = joins
    elements = array(scope)
    if isinstance(elements, list):
        for element in elements:
            scope.budget.spend()
            yield from joined(replace(scope, joined={**scope.joined, alias: element}), others)
