"""From the text of a query to its syntax.

Grammar: https://learn.microsoft.com/azure/cosmos-db/nosql/query/select, without subqueries.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import LarkError, UnexpectedInput, VisitError
from lark.tree import Meta

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.query.checks import check_query
from outbox_emulators.cosmos.query.functions import FUNCTIONS
from outbox_emulators.cosmos.query.syntax import (
    ArrayLiteral,
    Between,
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    In,
    Join,
    Like,
    Literal,
    Logical,
    Member,
    Name,
    ObjectLiteral,
    Parameter,
    Query,
    SortKey,
    Sourced,
    Unary,
)
from outbox_emulators.cosmos.query.values import UNDEFINED

_GRAMMAR = r"""
query: "SELECT"i [distinct] [top] projection [from_clause] [where] [group_by] [order_by] [page]
condition: from_clause where

distinct: "DISTINCT"i
top: "TOP"i count
projection: "*" -> everything
          | "VALUE"i source -> single_value
          | column ("," column)* -> columns
column: source [_AS NAME] | source NAME -> aliased
from_clause: "FROM"i origin join*
origin: NAME -> from_alias
      | NAME _AS NAME -> from_aliased
      | NAME NAME -> from_aliased
      | NAME _IN source -> from_elements
join: _JOIN NAME _IN source
where: "WHERE"i source
group_by: _GROUP "BY"i source ("," source)*
order_by: "ORDER"i "BY"i sort_key ("," sort_key)*
sort_key: source [SORT_DIRECTION]
page: "OFFSET"i count "LIMIT"i count
?count: NUMBER -> number | PARAMETER -> parameter

source: expression
?expression: coalesced | coalesced "?" expression ":" expression -> conditional
?coalesced: disjunction | coalesced COALESCE disjunction -> binary
?disjunction: conjunction | conjunction (OR conjunction)+ -> logical
?conjunction: negation | negation (AND negation)+ -> logical
?negation: comparison | NOT negation -> unary
?comparison: concatenation
           | concatenation COMPARE concatenation -> binary
           | concatenation [NOT] _IN "(" expression ("," expression)* ")" -> in_list
           | concatenation [NOT] "BETWEEN"i concatenation AND concatenation -> between
           | concatenation [NOT] "LIKE"i concatenation ["ESCAPE"i STRING] -> like
?concatenation: sum | concatenation CONCAT sum -> binary
?sum: product | sum (PLUS | MINUS) product -> binary
?product: signed | product (STAR | SLASH | PERCENT) signed -> binary
?signed: primary | (MINUS | PLUS) signed -> unary
?primary: NUMBER -> number
        | STRING -> string
        | PARAMETER -> parameter
        | CONSTANT -> constant
        | NAME -> name
        | NAME "(" [expression ("," expression)*] ")" -> call
        | primary "." NAME -> member
        | primary "[" expression "]" -> element
        | "(" expression ")"
        | "[" [expression ("," expression)*] "]" -> array
        | "{" [pair ("," pair)*] "}" -> object
pair: (STRING | NAME) ":" expression

_AS.2: /AS\b/i
_IN.2: /IN\b/i
_JOIN.2: /JOIN\b/i
_GROUP.2: /GROUP\b/i
COALESCE: "??"
OR.2: /OR\b/i
AND.2: /AND\b/i
NOT.2: /NOT\b/i
COMPARE: "=" | "!=" | "<>" | "<=" | ">=" | "<" | ">"
CONCAT: "||"
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"
CONSTANT.2: /(true|false|null|undefined)\b/i
SORT_DIRECTION.2: /(ASC|DESC)\b/i
NUMBER: /(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?/
STRING: /"([^"\\]|\\.)*"|'([^'\\]|\\.)*'/
PARAMETER: /@[A-Za-z_][A-Za-z0-9_]*/
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
%import common.WS
%ignore WS
"""

_RESERVED = frozenset(
    {
        *("AND", "AS", "ASC", "BETWEEN", "BY", "DESC", "DISTINCT", "ESCAPE", "EXISTS", "FALSE", "FROM", "GROUP"),
        *("IN", "JOIN", "LIKE", "NOT", "NULL", "OR", "ORDER", "SELECT", "TOP", "TRUE", "UDF", "UNDEFINED"),
        *("VALUE", "WHERE"),
    }
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@functools.lru_cache(maxsize=1024)
def parse_query(text: str) -> Query:
    """Raises BadRequest if the text is not a query, or uses what is not supported."""
    query = _parse(text, "query")
    assert isinstance(query, Query)
    return query


@functools.lru_cache(maxsize=1024)
def parse_condition(text: str) -> tuple[str, Expression]:
    """A patch's `FROM alias WHERE condition`: alias and condition. Raises BadRequest."""
    alias, where = _parse(text, "condition")
    return alias, where.expression


def _parse(text: str, start: str) -> Any:
    try:
        return _Builder(text).transform(_parser().parse(text, start=start))
    except UnexpectedInput as error:
        place = f"near position {error.pos_in_stream}" if error.pos_in_stream is not None else "at the end"
        raise BadRequest(f"Syntax error, incorrect syntax {place}: {error.get_context(text).strip()}") from error
    except VisitError as error:
        if isinstance(error.orig_exc, BadRequest):
            raise error.orig_exc from error
        raise
    except LarkError as error:
        raise BadRequest(f"Syntax error: {error}") from error


@functools.cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR, parser="lalr", start=["query", "condition"], propagate_positions=True, maybe_placeholders=True
    )


class _Builder(Transformer[Token, Any]):
    """Turns parse trees into syntax, from the leaves up."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    @v_args(inline=True)
    def query(
        self,
        distinct: Any,
        top: Any,
        projection: Any,
        origin: dict[str, Any] | None,
        where: Any,
        group: Any,
        order: Any,
        page: Any,
    ) -> Query:
        offset, limit = page or (None, None)
        query = Query(
            **(origin or {"alias": None, "from_text": ""}),
            **projection,
            distinct=distinct is not None,
            top=top,
            where=where,
            group_by=tuple(group or ()),
            order_by=tuple(order or ()),
            offset=offset,
            limit=limit,
        )
        check_query(query)
        return query

    @v_args(inline=True)
    def condition(self, origin: dict[str, Any], where: Sourced) -> tuple[str, Sourced]:
        if origin["joins"]:
            raise BadRequest("Syntax error: a patch's condition can only be about the item.")
        return origin["alias"], where

    def distinct(self, _: list[Any]) -> bool:
        return True

    def top(self, children: list[Expression]) -> Expression:
        return children[0]

    def everything(self, _: list[Any]) -> dict[str, Any]:
        return {}

    def single_value(self, children: list[Sourced]) -> dict[str, Any]:
        return {"value": children[0]}

    def columns(self, children: list[tuple[str | None, Sourced]]) -> dict[str, Any]:
        columns, unnamed = [], 0
        for alias, source in children:
            name = alias or _natural_name(source.expression)
            if name is None:
                unnamed += 1
                name = f"${unnamed}"
            columns.append(Column(name, source))
        return {"columns": tuple(columns)}

    @v_args(inline=True)
    def column(self, source: Sourced, alias: Token | None) -> tuple[str | None, Sourced]:
        return (None if alias is None else _identifier(alias)), source

    aliased = column

    @v_args(inline=True, meta=True)
    def from_clause(self, meta: Meta, origin: dict[str, Any], *joins: Join) -> dict[str, Any]:
        return origin | {"joins": (*origin.get("joins", ()), *joins), "from_text": self._source(meta)}

    @v_args(inline=True)
    def from_alias(self, name: Token) -> dict[str, Any]:
        return {"alias": _identifier(name)}

    @v_args(inline=True)
    def from_aliased(self, _: Token, alias: Token) -> dict[str, Any]:
        return {"alias": _identifier(alias)}

    @v_args(inline=True)
    def from_elements(self, alias: Token, array: Sourced) -> dict[str, Any]:
        names = [node.name for node in array.expression.walk() if isinstance(node, Name)]
        if not names:
            raise BadRequest("Syntax error: FROM … IN needs a property of the container's items.")
        return {"alias": names[0], "hides_item": True, "joins": (Join(_identifier(alias), array),)}

    @v_args(inline=True)
    def join(self, alias: Token, array: Sourced) -> Join:
        return Join(_identifier(alias), array)

    def group_by(self, children: list[Sourced]) -> list[Sourced]:
        return children

    def where(self, children: list[Sourced]) -> Sourced:
        return children[0]

    def order_by(self, children: list[SortKey]) -> list[SortKey]:
        return children

    @v_args(inline=True)
    def sort_key(self, source: Sourced, direction: Token | None) -> SortKey:
        return SortKey(source, direction is not None and direction.upper() == "DESC")

    def page(self, children: list[Expression]) -> tuple[Expression, ...]:
        return tuple(children)

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
        character = None if escape is None else _string(escape)
        if character is not None and len(character) != 1:
            raise BadRequest("Syntax error: ESCAPE needs a string of one character.")
        return _negated(Like(value, pattern, character), negated)

    @v_args(inline=True)
    def number(self, token: Token) -> Expression:
        return Literal(int(token) if token.isdecimal() else float(token))

    @v_args(inline=True)
    def string(self, token: Token) -> Expression:
        return Literal(_string(token))

    @v_args(inline=True)
    def parameter(self, token: Token) -> Expression:
        return Parameter(str(token))

    @v_args(inline=True)
    def constant(self, token: Token) -> Expression:
        return Literal({"TRUE": True, "FALSE": False, "NULL": None, "UNDEFINED": UNDEFINED}[token.upper()])

    @v_args(inline=True)
    def name(self, token: Token) -> Expression:
        return Name(_identifier(token))

    @v_args(inline=True)
    def call(self, function: Token, *arguments: Expression | None) -> Expression:
        given = tuple(argument for argument in arguments if argument is not None)
        return _checked_call(Call(function.upper(), given))

    @v_args(inline=True)
    def member(self, of: Expression, key: Token) -> Expression:
        return Member(of, Literal(_identifier(key)))

    @v_args(inline=True)
    def element(self, of: Expression, key: Expression) -> Expression:
        return Member(of, key)

    def array(self, children: list[Expression | None]) -> Expression:
        return ArrayLiteral(tuple(child for child in children if child is not None))

    def object(self, children: list[tuple[str, Expression] | None]) -> Expression:
        return ObjectLiteral(tuple(child for child in children if child is not None))

    @v_args(inline=True)
    def pair(self, key: Token, value: Expression) -> tuple[str, Expression]:
        return (_string(key) if key.type == "STRING" else _identifier(key)), value

    def _source(self, meta: Meta) -> str:
        return self._text[meta.start_pos : meta.end_pos]


def _checked_call(call: Call) -> Call:
    if call.is_aggregate:
        if len(call.arguments) != 1:
            raise BadRequest(f"The {call.function} function requires 1 argument.")
        return call
    function = FUNCTIONS.get(call.function)
    if function is None:
        raise BadRequest(f"'{call.function}' is not a recognized built-in function name.")
    if not function.fewest <= len(call.arguments) <= function.most:
        raise BadRequest(
            f"The {call.function} function requires {function.fewest} to {function.most} argument(s), "
            f"not {len(call.arguments)}."
        )
    return call


def _natural_name(expression: Expression) -> str | None:
    match expression:
        case Name(name):
            return name
        case Member(_, Literal(str() as key)):
            return key
    return None


def _negated(expression: Expression, negated: Token | None) -> Expression:
    return expression if negated is None else Unary("NOT", expression)


def _identifier(token: Token) -> str:
    if token.upper() in _RESERVED:
        raise BadRequest(f"Syntax error, incorrect syntax near '{token}', which is a reserved word.")
    return str(token)


def _string(token: Token) -> str:
    return _ESCAPE.sub(_unescape, token[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)
