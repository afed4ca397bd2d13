"""As much of the Kusto Query Language as can be judged without an engine: brackets, pipelines, tables, names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


class KqlError(ValueError):
    """A query that would be refused, or would look for what is not there; the message says what and where."""


COLUMNS: dict[str, frozenset[str]] = {
    "AppMetrics": frozenset({"TimeGenerated", "Name", "Sum", "ItemCount", "Min", "Max", "Properties"}),
    "AppTraces": frozenset({"TimeGenerated", "Message", "SeverityLevel", "Properties"}),
    "FunctionAppLogs": frozenset({"TimeGenerated", "Level", "Category", "ExceptionType", "Message"}),
    "CDBDataPlaneRequests5M": frozenset({"TimeGenerated", "CollectionName", "OperationName", "StatusCode"}),
}
"""Tables and those of their columns that the queries may read.

https://learn.microsoft.com/azure/azure-monitor/reference/tables/appmetrics, /apptraces, /functionapplogs and
/cdbdataplanerequests5m.
"""

OPERATORS = frozenset({"count", "extend", "order", "project", "summarize", "where"})
FUNCTIONS = frozenset(
    {"ago", "arg_max", "bin", "case", "coalesce", "count", "max", "maxif", "min", "substring", "sum", "sumif"}
    | {"toint", "toscalar", "tostring"}
)
WORDS = frozenset(
    {"and", "asc", "between", "by", "datatable", "desc", "in", "isfuzzy", "let", "print", "true", "union"}
)
TYPES = frozenset({"datetime", "int", "string"})
_PAIRS = {")": "(", "]": "["}
_TOKENS = re.compile(
    r"(?P<skip>\s+|//[^\n]*)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>\d+(?:\.\d+)?[a-z]?\b)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>\.\.|==|>=|<=|!=|[|()\[\],;:=<>*/.+-])"
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Query:
    """One query, read and found to be well-formed.

    Raises:
        KqlError: It is not.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        self._check_brackets()
        self._check_statements()
        self._check_pipes()
        self._check_names()

    @cached_property
    def header(self) -> str:
        """The comment that it begins with."""
        lines = self.text.splitlines()
        end = next((at for at, line in enumerate(lines) if not line.startswith("// ")), len(lines))
        return " ".join(line[3:] for line in lines[:end])

    @cached_property
    def tokens(self) -> list[Token]:
        """Its tokens, without comments."""
        return list(self._tokenize())

    @cached_property
    def lets(self) -> set[str]:
        """What it gives a name to."""
        return {after.text for before, after in self._pairs() if before.text == "let"}

    @cached_property
    def tables(self) -> set[str]:
        """The tables it reads."""
        return {token.text for token in self.tokens if token.kind == "name" and token.text in COLUMNS}

    @cached_property
    def metrics(self) -> set[str]:
        """The names that it compares AppMetrics' Name with."""
        found = set(re.findall(r'\bName == "([^"]+)"', self.text))
        for listed in re.findall(r"\bName in \(([^)]*)\)", self.text):
            found |= set(re.findall(r'"([^"]+)"', listed))
        return found

    @cached_property
    def properties(self) -> set[str]:
        """The members of Properties that it reads."""
        return set(re.findall(r"\bProperties\.(\w+)", self.text))

    @cached_property
    def columns(self) -> set[str]:
        """The columns that it makes itself."""
        return {
            before.text
            for before, after in self._pairs()
            if before.kind == "name" and after.text == "=" and before.text not in self.lets
        }

    def _tokenize(self) -> Iterator[Token]:
        at, line = 0, 1
        while at < len(self.text):
            match = _TOKENS.match(self.text, at)
            if match is None:
                raise KqlError(f"{self.name}:{line}: unexpected {self.text[at : at + 20]!r}")
            if match.lastgroup != "skip":
                yield Token(match.lastgroup or "", match.group(), line)
            line += match.group().count("\n")
            at = match.end()

    def _pairs(self) -> Iterator[tuple[Token, Token]]:
        yield from zip(self.tokens, self.tokens[1:], strict=False)

    def _check_brackets(self) -> None:
        open_: list[Token] = []
        for token in self.tokens:
            if token.text in _PAIRS.values():
                open_.append(token)
            elif token.text in _PAIRS and (not open_ or open_.pop().text != _PAIRS[token.text]):
                raise KqlError(f"{self.name}:{token.line}: {token.text} closes nothing")
        if open_:
            raise KqlError(f"{self.name}:{open_[-1].line}: {open_[-1].text} is not closed")

    def _check_statements(self) -> None:
        statements: list[list[Token]] = [[]]
        for token in self.tokens:
            if token.text == ";":
                statements.append([])
            else:
                statements[-1].append(token)
        *before, last = statements
        for statement in before:
            if [token.text for token in statement[:3:2]] != ["let", "="]:
                raise KqlError(f"{self.name}: a statement before the last is no let")
        if not last or last[0].text == "let":
            raise KqlError(f"{self.name}: it ends with no query")
        for name in self.lets:
            if sum(token.text == name for token in self.tokens) < 2:
                raise KqlError(f"{self.name}: {name} is not used")

    def _check_pipes(self) -> None:
        sources = COLUMNS.keys() | self.lets
        for before, after in self._pairs():
            if before.text == "|" and after.text not in OPERATORS:
                raise KqlError(f"{self.name}:{after.line}: no operator {after.text}")
        begins = [Token("symbol", ";", 0), *self.tokens]
        for before, token, after in zip(begins, begins[1:], begins[2:], strict=False):
            if (
                before.text in (";", "(")
                and token.kind == "name"
                and after.text == "|"
                and token.text not in sources
            ):
                raise KqlError(f"{self.name}:{token.line}: no table {token.text}")
        if self.tokens[-1].text == "|":
            raise KqlError(f"{self.name}: it ends in a pipe")

    def _check_names(self) -> None:
        known = set(WORDS | OPERATORS | TYPES | COLUMNS.keys() | self.lets)
        for table in self.tables:
            known |= COLUMNS[table]
        known |= {before.text for before, after in self._pairs() if before.kind == "name" and after.text == "="}
        previous = ""
        for token, after in zip(self.tokens, [*self.tokens[1:], Token("end", "", 0)], strict=True):
            called = after.text == "(" and token.text in FUNCTIONS
            if token.kind == "name" and previous != "." and not called and token.text not in known:
                raise KqlError(f"{self.name}:{token.line}: nothing is called {token.text}")
            previous = token.text
