"""From the parse trees of expressions to their syntax."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Transformer, v_args
from lark.tree import Meta

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.functions import FUNCTIONS, REFUSED
from outbox_relay.emulators.cosmos.query.functions.definitions import within_64_bits
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
    Query,
    Sourced,
    Subquery,
    Unary,
)
from outbox_relay.emulators.cosmos.query.values import UNDEFINED

_RESERVED = frozenset(
    {
        *("AND", "AS", "ASC", "BETWEEN", "BY", "DESC", "DISTINCT", "ESCAPE", "EXISTS", "FALSE", "FROM", "GROUP"),
        *("IN", "JOIN", "LIKE", "NOT", "NULL", "OR", "ORDER", "SELECT", "TOP", "TRUE", "UDF", "UNDEFINED"),
        *("VALUE", "WHERE"),
    }
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class ExpressionBuilder(Transformer[Token, Any]):
    """Turns the parse trees of expressions into syntax, from the leaves up."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    @v_args(inline=True, meta=True)
    def source(self, meta: Meta, expression: Expression) -> Sourced:
        return Sourced(expression, self._source(meta))

    def conditional(self, children: list[Expression]) -> Expression:
        return Conditional(*children)

    @v_args(inline=True)
    def binary(self, left: Expression, operator: Token, right: Expression) -> Expression:
        symbol = operator.upper()
        return Binary("!=" if symbol == "<>" else symbol, left, right)

    def logical(self, children: list[Any]) -> Expression:
        return Logical(children[1].upper(), tuple(children[::2]))

    @v_args(inline=True)
    def unary(self, operator: Token, operand: Expression) -> Expression:
        return Unary(operator.upper(), operand)

    @v_args(inline=True)
    def in_list(self, needle: Expression, negated: Token | None, *choices: Expression) -> Expression:
        return _negated(In(needle, choices), negated)

    @v_args(inline=True)
    def between(
        self, value: Expression, negated: Token | None, low: Expression, _: Token, high: Expression
    ) -> Expression:
        return _negated(Between(value, low, high), negated)

    @v_args(inline=True)
    def like(
        self, value: Expression, negated: Token | None, pattern: Expression, escape: Token | None
    ) -> Expression:
        character = None if escape is None else string(escape)
        if character is not None and len(character) != 1:
            raise BadRequest("Syntax error: ESCAPE needs a string of one character.")
        return _negated(Like(value, pattern, character), negated)

    @v_args(inline=True)
    def number(self, token: Token) -> Expression:
        try:
            return Literal(within_64_bits(int(token) if token.isdecimal() else float(token)))
        except (ValueError, OverflowError) as error:
            raise BadRequest("Syntax error: a number is outside the range of IEEE 754 doubles.") from error

    @v_args(inline=True)
    def string(self, token: Token) -> Expression:
        return Literal(string(token))

    @v_args(inline=True)
    def scalar_subquery(self, query: Query) -> Expression:
        return Subquery("scalar", query)

    @v_args(inline=True)
    def exists(self, query: Query) -> Expression:
        return Subquery("exists", query)

    @v_args(inline=True)
    def array_subquery(self, query: Query) -> Expression:
        return Subquery("array", query)

    @v_args(inline=True)
    def user_function(self, _: Token, name: Token, *__: Expression) -> Expression:
        raise BadRequest(f"User-defined functions are not supported in a query: 'udf.{name}'.")

    @v_args(inline=True)
    def parameter(self, token: Token) -> Expression:
        return Parameter(str(token))

    @v_args(inline=True)
    def constant(self, token: Token) -> Expression:
        return Literal({"TRUE": True, "FALSE": False, "NULL": None, "UNDEFINED": UNDEFINED}[token.upper()])

    @v_args(inline=True)
    def name(self, token: Token) -> Expression:
        return Name(identifier(token))

    @v_args(inline=True)
    def call(self, function: Token, *arguments: Expression | None) -> Expression:
        given = tuple(argument for argument in arguments if argument is not None)
        return _checked_call(Call(function.upper(), given))

    @v_args(inline=True)
    def member(self, of: Expression, key: Token) -> Expression:
        return Member(of, Literal(identifier(key)))

    @v_args(inline=True)
    def element(self, of: Expression, key: Expression) -> Expression:
        return Member(of, key)

    def array(self, children: list[Expression | None]) -> Expression:
        return ArrayLiteral(tuple(child for child in children if child is not None))

    def object(self, children: list[tuple[str, Expression] | None]) -> Expression:
        return ObjectLiteral(tuple(child for child in children if child is not None))

    @v_args(inline=True)
    def pair(self, key: Token, value: Expression) -> tuple[str, Expression]:
        return (string(key) if key.type == "STRING" else identifier(key)), value

    def _source(self, meta: Meta) -> str:
        return self._text[meta.start_pos : meta.end_pos]


def _checked_call(call: Call) -> Call:
    if call.is_aggregate:
        if len(call.arguments) != 1:
            raise BadRequest(f"The {call.function} function requires 1 argument.")
        return call
    function = FUNCTIONS.get(call.function)
    if call.function in REFUSED:
        raise BadRequest(f"The function '{call.function}' ({REFUSED[call.function]}) is not supported.")
    if function is None:
        raise BadRequest(f"'{call.function}' is not a recognized built-in function name.")
    if not function.fewest <= len(call.arguments) <= function.most:
        raise BadRequest(
            f"The {call.function} function requires {function.fewest} to {function.most} argument(s), "
            f"not {len(call.arguments)}."
        )
    return call


def _negated(expression: Expression, negated: Token | None) -> Expression:
    return expression if negated is None else Unary("NOT", expression)


def identifier(token: Token) -> str:
    """Return the name that a token is. Raises BadRequest for a reserved word."""
    if token.upper() in _RESERVED:
        raise BadRequest(f"Syntax error, incorrect syntax near '{token}', which is a reserved word.")
    return str(token)


def string(token: Token) -> str:
    """Return the text that a literal is."""
    text = _ESCAPE.sub(_unescape, token[1:-1])
    # Two escapes may be the halves of one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)
