"""KQL queries: validated on empty tables, and analyzed."""

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
    """A query is invalid or uses an unknown column. The message names the query and the problem."""


@dataclass(frozen=True)
class Query:
    """A valid query.

    Raises:
        KqlError: The query is invalid, or declares a name that it does not use.
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        if problem := _problem(self.text):
            raise KqlError(f"{self.name}: {problem}")
        for token, after in self._pairs():
            # Column names are case-sensitive in Log Analytics, but not in duckdb.
            if after != "(" and token not in _COLUMNS and token.lower() in _COLUMNS_IN_LOWER_CASE:
                raise KqlError(f"{self.name}: no column {token}: column names are case-sensitive")
        for name in self.lets:
            if self.tokens.count(name) < 2:
                raise KqlError(f"{self.name}: {name} is not used")

    @cached_property
    def header(self) -> str:
        """The comment at the beginning."""
        lines = self.text.splitlines()
        end = next((at for at, line in enumerate(lines) if not line.startswith("// ")), len(lines))
        return " ".join(line[3:] for line in lines[:end])

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens, without comments."""
        return [token for token in _TOKENS.findall(self.text) if not token.startswith("//")]

    @cached_property
    def lets(self) -> set[str]:
        """The names that `let` declares."""
        return {after for before, after in self._pairs() if before == "let"}

    @cached_property
    def tables(self) -> set[str]:
        """The tables that it reads."""
        return set(self.tokens) & set(SCHEMAS)

    @cached_property
    def metrics(self) -> set[str]:
        """The metric names that it compares with."""
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
        """The columns that it computes."""
        return {before for before, after in self._pairs() if after == "=" and before not in self.lets}

    def _pairs(self) -> Iterator[tuple[str, str]]:
        yield from zip(self.tokens, self.tokens[1:], strict=False)


@cache
def _problem(text: str) -> str:
    """Why a query cannot run on empty tables; an empty string if it can."""
    with Workspace({}) as workspace:
        try:
            workspace.query(text)
        except (duckdb_kql.KqlError, duckdb.Error) as error:
            return str(error)
    return ""
