"""The part of the Bicep language that `infra/` is written in, read into a tree.

pycep-parser reads the files too (`test_syntax.py`) and must find the same declarations. Its tree, though, keeps a
name apart from a string no more, and loses precedence: what a file would deploy cannot be told from it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.infra.tree import (
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


class BicepSyntaxError(Exception):
    """Something the reader does not know: the message has the file, the line and what stands there."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


_TOKENS = re.compile(
    r"(?P<skip>[ \t\r]+|//[^\n]*|/\*.*?\*/|\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<block>'''.*?''')"
    r"|(?P<number>\d+)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>=>|\?\?|\|\||&&|==|!=|=~|!~|<=|>=|\.\?|[@=?:!<>+\-*/%.,()\[\]{}])",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", "\\": "\\", "$": "$"}
_PRECEDENCE = (
    ("??",),
    ("||",),
    ("&&",),
    ("==", "!=", "=~", "!~"),
    ("<", "<=", ">", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)


@functools.cache  # most files of a changed copy are those of the original
def parse(text: str, source: str) -> tuple[Declaration, ...]:
    """The declarations of a .bicep or .bicepparam file, in their order.

    Raises:
        BicepSyntaxError: Something is not of the language, or not of the part of it that is read here.
    """
    return tuple(_Parser(text, source).declarations())


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._texts: dict[int, Text | Constant] = {}
        self._tokens = list(self._tokenize(text))
        self._at = 0

    # Characters to tokens

    def _tokenize(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            if text[at] == "'" and not text.startswith("'''", at):
                value, end = self._string(text, at + 1, line)
                self._texts[at] = value
                yield _Token("text", str(at), line)
                at = end
                continue
            match = _TOKENS.match(text, at)
            if match is None:
                raise BicepSyntaxError(f"{self._source}:{line}: unexpected {text[at : at + 20]!r}")
            kind = match.lastgroup or ""
            if kind == "block":
                self._texts[at] = Constant(match.group()[3:-3].removeprefix("\n"))
                yield _Token("text", str(at), line)
            elif kind != "skip":
                yield _Token(kind, match.group(), line)
            line += match.group().count("\n")
            at = match.end()
        yield _Token("end", "", line)

    def _string(self, text: str, at: int, line: int) -> tuple[Text | Constant, int]:
        parts: list[str | Expression] = []
        plain = ""
        while not text.startswith("'", at):
            if at >= len(text) or text[at] == "\n":
                raise BicepSyntaxError(f"{self._source}:{line}: a string does not end")
            if text[at] == "\\":
                plain += _ESCAPES[text[at + 1]]
                at += 2
            elif text.startswith("${", at):
                end = self._closing(text, at + 2)
                inner = _Parser(text[at + 2 : end], f"{self._source}:{line}")
                parts += [plain, inner.expression()]
                plain, at = "", end + 1
            else:
                plain += text[at]
                at += 1
        if not parts:
            return Constant(plain), at + 1
        return Text((*parts, plain)), at + 1

    @staticmethod
    def _closing(text: str, at: int) -> int:
        depth, quoted = 0, False
        while depth or quoted or text[at] != "}":
            if text[at] == "'":
                quoted = not quoted
            elif not quoted:
                depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        return at

    # Tokens

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token.kind in ("symbol", "name") and token.text in texts

    def _take(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            token = self._peek()
            raise BicepSyntaxError(f"{self._source}:{token.line}: expected {text!r}, not {token.text!r}")

    def _identifier(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise BicepSyntaxError(f"{self._source}:{token.line}: expected a name, not {token.text!r}")
        return token.text

    def _newlines(self) -> None:
        while self._peek().kind == "newline":
            self._at += 1

    def _literal(self) -> str:
        value = self._primary()
        if not isinstance(value, Constant) or not isinstance(value.value, str):
            raise BicepSyntaxError(f"{self._source}:{self._peek().line}: expected a string without an expression")
        return value.value

    # Statements

    def declarations(self) -> Iterator[Declaration]:
        self._newlines()
        while self._peek().kind != "end":
            yield self._declaration(self._decorators())
            if self._peek().kind not in ("newline", "end"):
                token = self._peek()
                raise BicepSyntaxError(f"{self._source}:{token.line}: unexpected {token.text!r}")
            self._newlines()

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
        line, keyword = self._peek().line, self._identifier()
        match keyword:
            case "targetScope":
                return Declaration("targetScope", "targetScope", "", self._behind_equals())
            case "using":
                return Declaration("using", "using", self._literal(), None)
            case "metadata" | "var":
                return Declaration(keyword, self._identifier(), "", self._behind_equals(), decorators=decorators)
            case "param" | "output":
                name = self._identifier()
                data_type = "" if self._is("=") else self._identifier()
                value = self._behind_equals() if self._is("=") else None
                return Declaration(keyword, name, data_type, value, decorators=decorators)
            case "resource" | "module":
                name, kind = self._identifier(), self._literal()
                existing = self._take("existing")
                return Declaration(keyword, name, kind, self._behind_equals(), existing, decorators)
        raise BicepSyntaxError(f"{self._source}:{line}: unknown statement {keyword!r}")

    def _behind_equals(self) -> Expression:
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
                target = Index(target, self.expression())
                self._expect("]")
            elif not self._take("!"):  # an assertion for the compiler; nothing happens
                return target

    def _primary(self) -> Expression:
        token = self._next()
        match token.kind, token.text:
            case "text", at:
                return self._texts[int(at)]
            case "number", digits:
                return Constant(int(digits))
            case "name", "true" | "false":
                return Constant(token.text == "true")
            case "name", "null":
                return Constant(None)
            case "name", name if self._is("("):
                return Call(name, self._arguments())
            case "name", name if self._take("=>"):
                return Lambda(name, self.expression())
            case "name", name:
                return Name(name)
            case "symbol", "(":
                inner = self.expression()
                self._expect(")")
                return inner
            case "symbol", "[":
                return self._array()
            case "symbol", "{":
                return self._object()
        raise BicepSyntaxError(f"{self._source}:{token.line}: unexpected {token.text!r}")

    def _arguments(self) -> tuple[Expression, ...]:
        self._expect("(")
        self._newlines()
        found: list[Expression] = []
        while not self._take(")"):
            found.append(self.expression())
            self._take(",")
            self._newlines()
        return tuple(found)

    def _array(self) -> Expression:
        self._newlines()
        if self._take("for"):
            return self._loop()
        items: list[Expression] = []
        while not self._take("]"):
            items.append(self.expression())
            self._take(",")
            self._newlines()
        return ArrayOf(tuple(items))

    def _loop(self) -> Loop:
        index = None
        if self._take("("):
            item = self._identifier()
            self._expect(",")
            index = self._identifier()
            self._expect(")")
        else:
            item = self._identifier()
        self._expect("in")
        source = self.expression()
        self._expect(":")
        body = self.expression()
        self._newlines()
        self._expect("]")
        return Loop(item, index, source, body)

    def _object(self) -> ObjectOf:
        self._newlines()
        entries: list[tuple[Expression, Expression]] = []
        while not self._take("}"):
            token = self._peek()
            key = Constant(self._next().text) if token.kind == "name" else self._primary()
            self._expect(":")
            entries.append((key, self.expression()))
            self._take(",")
            self._newlines()
        return ObjectOf(tuple(entries))
