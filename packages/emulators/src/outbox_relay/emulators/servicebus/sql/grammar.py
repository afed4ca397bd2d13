"""The grammar of subscription rules' SQL."""

from __future__ import annotations

from functools import cache

from lark import Lark

_GRAMMAR = r"""
    filter: _or
    action: _statement (_separator* _statement)* _separator*
    _statement: set | remove
    _separator: "," | ";"
    set: "SET"i property "=" _or
    remove: "REMOVE"i property

    _or: or_ | _and
    or_: _or "OR"i _and
    _and: and_ | _not
    and_: _and "AND"i _not
    _not: not_ | _comparison
    not_: "NOT"i _not

    _comparison: compare | is_null | is_not_null | in_ | not_in | like | not_like | _sum
    compare: _sum COMPARE _sum
           | _sum EQUALS _sum
    is_null: _sum "IS"i "NULL"i
    is_not_null: _sum "IS"i "NOT"i "NULL"i
    in_: _sum "IN"i "(" _or ("," _or)* ")"
    not_in: _sum "NOT"i "IN"i "(" _or ("," _or)* ")"
    like: _sum "LIKE"i _sum ["ESCAPE"i _sum]
    not_like: _sum "NOT"i "LIKE"i _sum ["ESCAPE"i _sum]

    _sum: arithmetic_sum | _product
    arithmetic_sum: _sum SIGN _product
    _product: arithmetic_product | _unary
    arithmetic_product: _product FACTOR _unary
    _unary: signed | _primary
    signed: SIGN _unary
    _primary: constant | property | parameter | exists | newid | property_function | "(" _or ")"

    exists: "EXISTS"i "(" property ")"
    newid: "NEWID"i "(" ")"
    property_function: _PROPERTY "(" _or ")"
    parameter: "@" NAME
    constant: STRING -> string
            | INTEGER -> integer
            | NUMBER -> number
            | "TRUE"i -> true
            | "FALSE"i -> false
    property: (SCOPE ".")? (NAME | DELIMITED | QUOTED)

    SCOPE.5: /(sys|user)(?=\s*\.)/i
    _PROPERTY.5: /(property|p)(?=\s*\()/i
    EQUALS: "="
    COMPARE: "<>" | "!=" | ">=" | "<=" | ">" | "<"
    SIGN: "+" | "-"
    FACTOR: "*" | "/" | "%"
    NAME: /[^\W\d_]\w*/
    DELIMITED: /\[([^\]]|\]\])*\]/
    QUOTED: /"([^"]|"")*"/
    STRING: /'([^']|'')*'/
    INTEGER: /\d+/
    NUMBER.2: /\d+\.\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|\d+[eE][+-]?\d+/
    %import common.WS
    %ignore WS
"""


@cache
def parser() -> Lark:
    """Return the parser, which the first rule that needs it creates."""
    return Lark(_GRAMMAR, parser="lalr", start=["filter", "action"])
