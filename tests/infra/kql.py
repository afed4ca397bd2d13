"""The queries of alerts and workbook: read, tried on empty tables, and looked into."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import duckdb
import duckdb_kql

from tests.infra.workspace import SCHEMAS, Workspace

_TOKENS = re.compile(r"//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|[A-Za-z_]\w*|\d[\w.]*|[=<>!]=|\S")

_COLUMNS = {column for columns in SCHEMAS.values() for column in columns}
_COLUMNS_IN_LOWER_CASE = {column.lower() for column in _COLUMNS}


class KqlError(ValueError):
    """A query that would be refused, or would look for what is not there; the message says what and where."""


@dataclass(frozen=True)
class Query:
    """One query, which runs.

    Raises:
        KqlError: It does not, or gives a name to what it does not use.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        said = _refusal(self.text)
        if said:
            raise KqlError(f"{self.name}: {said}")
        for token, after in self._pairs():
            # The engine takes no notice of case in a column's name; Log Analytics does.
            if after != "(" and token not in _COLUMNS and token.lower() in _COLUMNS_IN_LOWER_CASE:
                raise KqlError(f"{self.name}: no column {token}, by case")
        for name in self.lets:
            if self.tokens.count(name) < 2:
                raise KqlError(f"{self.name}: {name} is not used")

    @cached_property
    def header(self) -> str:
        """The comment that it begins with."""
        lines = self.text.splitlines()
        end = next((at for at, line in enumerate(lines) if not line.startswith("// ")), len(lines))
        return " ".join(line[3:] for line in lines[:end])

    @cached_property
    def tokens(self) -> list[str]:
        """Its tokens, without comments."""
        return [token for token in _TOKENS.findall(self.text) if not token.startswith("//")]

    @cached_property
    def lets(self) -> set[str]:
        """What it gives a name to."""
        return {after for before, after in self._pairs() if before == "let"}

    @cached_property
    def tables(self) -> set[str]:
        """The tables it reads."""
        return set(self.tokens) & set(SCHEMAS)

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
        return {
            dotted or quoted for dotted, quoted in re.findall(r'\bProperties(?:\.(\w+)|\["(\w+)"\])', self.text)
        }

    @cached_property
    def columns(self) -> set[str]:
        """The columns that it makes itself."""
        return {before for before, after in self._pairs() if after == "=" and before not in self.lets}

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield from zip(self.tokens, self.tokens[1:], strict=False)


@cache
def _refusal(text: str) -> str:
    """Why a query cannot run on tables without rows; empty where it can."""
    with Workspace({}) as workspace:
        try:
            workspace.ask(text)
        except (duckdb_kql.KqlError, duckdb.Error) as error:
            return str(error)
    return ""
