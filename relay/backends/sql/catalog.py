"""The queries of `check` in a database's own SQL, and the rights that reading a feed needs there.

Their texts are in the folder `questions`. An operator may run `check` on PostgreSQL with many rights, and a search
path in which others may create. A function or operator that takes its arguments exactly as they are would be
preferred: so there, those of the system catalogs are named with their schema, or given the types that they take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outbox_relay.changefeed.connections import is_postgresql
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from outbox_relay.changefeed.sqlserver.dialect import SqlServerDialect
from outbox_relay.changefeed.statements import Dialect, Statement
from outbox_relay.changefeed.tables import Tables, names_of
from relay.config.settings import QUARANTINE_TABLE, SqlFeed

RIGHTS = ("select", "insert", "update", "delete", "execute")

_QUESTIONS = Path(__file__).parent / "questions"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The questions to one kind of database; `table` is `schema.Table`.

    Attributes:
        engine: The kind of database.
        dialect: Its dialect.
        needed: The rights that the relay needs, by the purposes of `purposes_of`.
        narrow: The types of text that turn letters which a collation lacks into question marks.
        name_parameters: The parameters for a schema and a name.
        maintenance_parameters: Those of the question about the maintenance of a table.
        shows_all: Whether every login sees every object, whatever its rights.
    """

    engine: str
    dialect: Dialect
    needed: Mapping[str, Sequence[str]]
    narrow: Collection[str]
    name_parameters: Callable[[str, str], tuple[str, ...]]
    maintenance_parameters: Callable[[str], tuple[str, ...]]
    shows_all: bool

    def server(self) -> Statement:
        return Statement(self._text("server"))

    def objects(self, table: str, quarantine: str = QUARANTINE_TABLE) -> Statement:
        named = purposes_of(table, quarantine).items()
        values = [(purpose, *self.name_parameters(*name)) for purpose, name in named]
        rows = ", ".join(f"({', '.join('?' * len(each))})" for each in values)
        return Statement(self._text("objects").format(rows=rows), [value for each in values for value in each])

    def columns(self, table: str) -> Statement:
        return Statement(self._text("columns"), self.name_parameters(*_split(table)))

    def primary_key(self, table: str) -> Statement:
        return Statement(self._text("primary_key"), self.name_parameters(*_split(table)))

    def hidden(self, *tables: str) -> Statement:
        """Return the query for the tables, of two, of which policies may hide rows from this login."""
        return Statement(
            self._text("hidden"), [each for one in tables for each in self.name_parameters(*_split(one))]
        )

    def detached(self, table: str) -> Statement | None:
        """Return the query for tables that may have rows of detached partitions.

        It is None if that cannot be asked.
        """
        return Statement(self._text("detached"), _split(table)) if self.shows_all else None

    def maintenance(self, table: str) -> Statement:
        return Statement(self._text("maintenance"), self.maintenance_parameters(table))

    def _text(self, question: str) -> str:
        return (_QUESTIONS / self.dialect.name / f"{question}.sql").read_text(encoding="utf-8")


def purposes_of(table: str, quarantine: str = QUARANTINE_TABLE) -> dict[str, tuple[str, str]]:
    """Return the schema and the name of each object of a feed, by its purpose; `quarantine` is that table."""
    return {
        "events": _split(table),
        "migration": ("changefeed", "migration"),
        "outbox_feed": ("changefeed", "outbox_feed"),
        "quarantine": _split(quarantine),
        **{kind: ("changefeed", own) for kind, own in names_of(table).items()},
    }


def _split(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name


def _postgresql_maintenance(table: str) -> tuple[str, ...]:
    names = names_of(table)
    return Tables(PostgresDialect(), table).outbox, table, table, names["outbox"], names["feed"]


_NEEDED = {
    "read_events": ("execute",),
    "read_feed": ("execute",),
    "has_news": ("execute",),
    "events": ("select",),
    "claim": ("select", "insert", "update"),
}

POSTGRESQL = Catalog(
    "PostgreSQL",
    PostgresDialect(),
    # Its functions read the feed with the rights of the caller.
    {**_NEEDED, "feed": ("select",), "outbox_feed": ("select",)},
    narrow=(),
    name_parameters=lambda schema, name: (schema, name),
    maintenance_parameters=_postgresql_maintenance,
    shows_all=True,
)

SQLSERVER = Catalog(
    "SQL Server",
    SqlServerDialect(),
    _NEEDED,
    narrow=("varchar", "char", "text"),
    name_parameters=lambda schema, name: (".".join(map(SqlServerDialect().quoted, (schema, name))),),
    maintenance_parameters=lambda table: (table,),
    shows_all=False,
)


def tables_of(dialect: Dialect, feed: SqlFeed) -> Tables:
    """Return the tables of a feed, with the columns that relay.toml names for an event's key and its id."""
    fields = feed.selection.fields
    return Tables(dialect, feed.feed, fields.column_of("key"), fields.column_of("id"))


def catalog_of(connection_string: str) -> Catalog:
    """Return the catalog of the database that the setting SQL names."""
    return POSTGRESQL if is_postgresql(connection_string) else SQLSERVER
