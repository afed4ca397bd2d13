"""From the text of a query to its syntax, by the grammar of queries.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/select, and sql.g4 of azure-cosmos-dotnet-v3.
"""

from __future__ import annotations

import functools
from typing import Any

from lark import Lark
from lark.exceptions import LarkError, UnexpectedInput, VisitError

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.clauses import QueryBuilder
from outbox_relay.emulators.cosmos.query.syntax import Expression, Query

_LONGEST = 512 * 1024
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits#sql-query-limits"""

_GRAMMAR = r"""
query: select
select: _SELECT [distinct] [top] projection [from_clause] [where] [group_by] [order_by] [page]
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
      | path -> from_path
      | path [_AS] NAME -> from_path
      | "(" select ")" -> from_subquery
      | "(" select ")" [_AS] NAME -> from_subquery
path: NAME step+
step: "." NAME | "[" (STRING | NUMBER) "]"
join: _JOIN NAME _IN source
    | _JOIN "(" select ")" [_AS] NAME -> join_subquery
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
?negation: bitwise | NOT negation -> unary
?bitwise: exclusive | bitwise BIT_OR exclusive -> binary
?exclusive: intersection | exclusive BIT_XOR intersection -> binary
?intersection: comparison | intersection BIT_AND comparison -> binary
?comparison: shifted
           | shifted COMPARE shifted -> binary
           | shifted [NOT] _IN "(" expression ("," expression)* ")" -> in_list
           | shifted [NOT] "BETWEEN"i shifted AND shifted -> between
           | shifted [NOT] "LIKE"i shifted ["ESCAPE"i STRING] -> like
?shifted: concatenation | shifted SHIFT concatenation -> binary
?concatenation: sum | concatenation CONCAT sum -> binary
?sum: product | sum (PLUS | MINUS) product -> binary
?product: signed | product (STAR | SLASH | PERCENT) signed -> binary
?signed: primary | (MINUS | PLUS | COMPLEMENT) signed -> unary
?primary: NUMBER -> number
        | STRING -> string
        | PARAMETER -> parameter
        | CONSTANT -> constant
        | NAME -> name
        | "(" select ")" -> scalar_subquery
        | _EXISTS "(" select ")" -> exists
        | _ARRAY "(" select ")" -> array_subquery
        | UDF "." NAME "(" [expression ("," expression)*] ")" -> user_function
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
_SELECT.2: /SELECT\b/i
_EXISTS.2: /EXISTS\b/i
_ARRAY.2: /ARRAY(?=\s*\()/i
UDF.2: /UDF(?=\s*\.)/i
COALESCE: "??"
OR.2: /OR\b/i
AND.2: /AND\b/i
NOT.2: /NOT\b/i
COMPARE: "=" | "!=" | "<>" | "<=" | ">=" | "<" | ">"
CONCAT: "||"
BIT_OR: "|"
BIT_XOR: "^"
BIT_AND: "&"
COMPLEMENT: "~"
SHIFT: ">>>" | "<<" | ">>"
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


@functools.lru_cache(maxsize=1024)
def parse_query(text: str) -> Query:
    """Parse a query. Raises BadRequest if the text is not a query, or uses what is not supported."""
    query = _parse(text, "query")
    assert isinstance(query, Query)
    return query


@functools.lru_cache(maxsize=1024)
def parse_condition(text: str) -> tuple[str, Expression]:
    """Parse a patch's `FROM alias WHERE condition` into alias and condition. Raises BadRequest."""
    alias, where = _parse(text, "condition")
    return alias, where.expression


def _parse(text: str, start: str) -> Any:
    if len(text) > _LONGEST:
        raise BadRequest(f"The query has {len(text)} characters; the limit is {_LONGEST}.")
    try:
        return QueryBuilder(text).transform(parser().parse(text, start=start))
    except UnexpectedInput as error:
        place = f"near position {error.pos_in_stream}" if error.pos_in_stream is not None else "at the end"
        raise BadRequest(f"Syntax error, incorrect syntax {place}: {error.get_context(text).strip()}") from error
    except VisitError as error:
        if isinstance(error.orig_exc, BadRequest):
            raise error.orig_exc from error
        raise BadRequest(f"Syntax error: {error.orig_exc}") from error
    except LarkError as error:
        raise BadRequest(f"Syntax error: {error}") from error


@functools.cache
def parser() -> Lark:
    """Return the parser, which the first query that needs it creates."""
    return Lark(
        _GRAMMAR, parser="lalr", start=["query", "condition"], propagate_positions=True, maybe_placeholders=True
    )
