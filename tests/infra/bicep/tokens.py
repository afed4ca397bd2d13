"""The tokens of a Bicep file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


class BicepSyntaxError(Exception):
    """The syntax is invalid or not supported here. The message has the file, the line and the text."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        kind: name, number, string, symbol, newline or end.
        parts: Of a string: its text, split at every `${…}`. Every second part is the source of an expression.
    """

    kind: str
    text: str
    line: int
    parts: tuple[str, ...] = ()


_TOKENS = re.compile(
    r"(?P<skip>[ \t\r]+|//[^\n]*|\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<number>\d+)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>=>|\?\?|\|\||&&|==|!=|<=|\.\?|[@=?:!<>+\-*.,()\[\]{}])"
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", "\\": "\\", "$": "$"}


def tokenize(text: str, source: str) -> Iterator[Token]:
    """The tokens of a text, without spaces and comments. `source` is its name in messages.

    Raises:
        BicepSyntaxError: The text has an unknown character or an unterminated string.
    """
    at, line = 0, 1
    while at < len(text):
        if text[at] == "'":
            parts, end = _string(text, at + 1, f"{source}:{line}")
            yield Token("string", text[at:end], line, parts)
            at = end
            continue
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            raise BicepSyntaxError(f"{source}:{line}: unexpected {text[at : at + 20]!r}")
        if match.lastgroup != "skip":
            yield Token(match.lastgroup, match.group(), line)
        line += match.group().count("\n")
        at = match.end()
    yield Token("end", "", line)


def _string(text: str, at: int, where: str) -> tuple[tuple[str, ...], int]:
    """The parts of the string whose content begins at `at`, and where it ends."""
    parts, plain = [], ""
    while not text.startswith("'", at):
        if at >= len(text) or text[at] == "\n":
            raise BicepSyntaxError(f"{where}: unterminated string")
        if text[at] == "\\":
            plain += _ESCAPES[text[at + 1]]
            at += 2
        elif text.startswith("${", at):
            end = _closing_brace(text, at + 2)
            parts += [plain, text[at + 2 : end]]
            plain, at = "", end + 1
        else:
            plain += text[at]
            at += 1
    return (*parts, plain), at + 1


def _closing_brace(text: str, at: int) -> int:
    depth, quoted = 0, False
    while depth or quoted or text[at] != "}":
        if text[at] == "'":
            quoted = not quoted
        elif not quoted:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at
