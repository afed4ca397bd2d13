"""Parses the part of the Bicep language that `infra/` uses.

pycep-parser must find the same declarations (`test_bicep.py`). Its own tree cannot be evaluated: it does not
distinguish names from strings, and loses precedence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.infra.bicep.tokens import BicepSyntaxError, Token, tokenize
from tests.infra.bicep.tree import (
    ArrayOf,
    Binary,
    Call,
    Choice,
    Conditional,
    Constant,
    Declaration,
    Expression,
    Index,
    Lambda,
    Loop,
    Member,
    Name,
    Not,
    ObjectOf,
    Text,
)

_T = TypeVar("_T")

_PRECEDENCE = (("??",), ("||",), ("&&",), ("==", "!="), ("<", "<=", ">"), ("+", "-"), ("*",))


@functools.cache  # a changed copy of infra/ shares most files with the original
def parse(text: str, source: str) -> tuple[Declaration, ...]:
    """The declarations of a .bicep or .bicepparam file, in order. `source` is its name in messages.

    Raises:
        BicepSyntaxError: The syntax is invalid or not supported here.
    """
    return tuple(_Parser(text, source).declarations())


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._tokens = list(tokenize(text, source))
        self._at = 0

    # Tokens

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token.kind in ("symbol", "name") and token.text in texts

    def _take(self, text: str) -> bool:
        found = self._is(text)
        self._at += found
        return found

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(self._peek())

    def _unexpected(self, token: Token) -> BicepSyntaxError:
        return BicepSyntaxError(f"{self._source}:{token.line}: unexpected {token.text!r}")

    def _identifier(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise self._unexpected(token)
        return token.text

    def _literal(self) -> str:
        token = self._next()
        if token.kind != "string" or len(token.parts) != 1:
            raise self._unexpected(token)
        return token.parts[0]

    def _newlines(self) -> bool:
        begin = self._at
        while self._peek().kind == "newline":
            self._at += 1
        return self._at > begin

    def _listed(self, closing: str, read: Callable[[], _T]) -> tuple[_T, ...]:
        """Items up to the closing bracket, separated by a comma or a newline."""
        found: list[_T] = []
        self._newlines()
        while not self._take(closing):
            found.append(read())
            comma = self._take(",")
            if not self._newlines() and not comma and not self._is(closing):
                raise self._unexpected(self._peek())
        return tuple(found)

    # Statements

    def declarations(self) -> Iterator[Declaration]:
        self._newlines()
        while self._peek().kind != "end":
            yield self._declaration(self._decorators())
            if not self._newlines() and self._peek().kind != "end":
                raise self._unexpected(self._peek())

    def _decorators(self) -> dict[str, Expression | None]:
        found: dict[str, Expression | None] = {}
        while self._take("@"):
            name = self._identifier()
            self._expect("(")
            found[name] = None if self._is(")") else self.expression()
            self._expect(")")
            self._newlines()
        return found

    def _declaration(self, decorators: dict[str, Expression | None]) -> Declaration:
        first = self._peek()
        match keyword := self._identifier():
            case "targetScope":
                return Declaration(keyword, keyword, "", self._assigned())
            case "using":
                return Declaration(keyword, keyword, self._literal(), None)
            case "metadata" | "var":
                return Declaration(keyword, self._identifier(), "", self._assigned(), decorators=decorators)
            case "param" | "output":
                name = self._identifier()
                data_type = "" if self._is("=") else self._identifier()
                value = self._assigned() if self._is("=") else None
                return Declaration(keyword, name, data_type, value, decorators=decorators)
            case "resource" | "module":
                name, kind = self._identifier(), self._literal()
                existing = self._take("existing")
                return Declaration(keyword, name, kind, self._assigned(), existing, decorators)
        raise self._unexpected(first)

    def _assigned(self) -> Expression:
        self._expect("=")
        if not self._take("if"):
            return self.expression()
        self._expect("(")
        condition = self.expression()
        self._expect(")")
        return Conditional(condition, self.expression())

    # Expressions

    def expression(self) -> Expression:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        then = self.expression()
        self._expect(":")
        return Choice(condition, then, self.expression())

    def _binary(self, level: int) -> Expression:
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._binary(level + 1)
        while self._is(*_PRECEDENCE[level]):
            left = Binary(self._next().text, left, self._binary(level + 1))
        return left

    def _unary(self) -> Expression:
        if self._take("!"):
            return Not(self._unary())
        if self._take("-"):
            return Binary("-", Constant(0), self._unary())
        return self._postfix(self._primary())

    def _postfix(self, target: Expression) -> Expression:
        while True:
            if self._is(".", ".?"):
                safe = self._next().text == ".?"
                target = Member(target, self._identifier(), safe)
            elif self._take("["):
                safe = self._take("?")
                target = Index(target, self.expression(), safe)
                self._expect("]")
            elif not self._take("!"):  # `!` asserts to the compiler that the value is not null
                return target

    def _primary(self) -> Expression:
        token = self._next()
        match token.kind, token.text:
            case "string", _:
                return self._text(token)
            case "number", digits:
                return Constant(int(digits))
            case "name", "true" | "false":
                return Constant(token.text == "true")
            case "name", name if self._take("("):
                return Call(name, self._listed(")", self.expression))
            case "name", name if self._take("=>"):
                return Lambda(name, self.expression())
            case "name", name:
                return Name(name)
            case "symbol", "(":
                inner = self.expression()
                self._expect(")")
                return inner
            case "symbol", "[":
                return self._loop() if self._take("for") else ArrayOf(self._listed("]", self.expression))
            case "symbol", "{":
                return ObjectOf(self._listed("}", self._entry))
        raise self._unexpected(token)

    def _text(self, token: Token) -> Expression:
        if len(token.parts) == 1:
            return Constant(token.parts[0])
        where = f"{self._source}:{token.line}"
        inner = (_Parser(part, where).expression() if at % 2 else part for at, part in enumerate(token.parts))
        return Text(tuple(inner))

    def _loop(self) -> Loop:
        number = ""
        if self._take("("):
            item = self._identifier()
            self._expect(",")
            number = self._identifier()
            self._expect(")")
        else:
            item = self._identifier()
        self._expect("in")
        source = self.expression()
        self._expect(":")
        body = self.expression()
        self._newlines()
        self._expect("]")
        return Loop(item, source, body, number)

    def _entry(self) -> tuple[Expression, Expression]:
        token = self._next()
        if token.kind not in ("name", "string"):
            raise self._unexpected(token)
        key = Constant(token.text) if token.kind == "name" else self._text(token)
        self._expect(":")
        return key, self.expression()
