"""The questions that `check` asks of a database, in its own SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from changefeed.connections import is_postgresql
from changefeed.statements import Statement
from relay.cli.check.postgresql import PostgresCatalog
from relay.cli.check.sql_facts import Engine
from relay.cli.check.sqlserver import SqlServerCatalog


class Catalog(Protocol):
    """Each statement gives the rows that its docstring names. `table` is `schema.Table`."""

    engine: Engine

    def server(self) -> Statement:
        """One row: isolation, snapshots, autovacuum, now_ms, as in ServerFacts."""

    def objects(self, names: Mapping[str, tuple[str, str]], /) -> Statement:
        """For each purpose with a schema and a name: purpose, exists, select, insert, update, delete, execute."""

    def version(self) -> Statement:
        """One row: the version of the schema `changefeed`."""

    def columns(self, table: str, /) -> Statement:
        """The columns of a table: name, type."""

    def primary_key(self, table: str, /) -> Statement:
        """The columns of its primary key, in order: name."""

    def maintenance(self, table: str, /) -> Statement:
        """One row: sequence_cache, notifies, undecided, the names of tables without autovacuum joined by ', ',
        oldest_transaction_s."""

    def waiting(self, table: str, /) -> Statement:
        """The rows of the outbox table: shard_id, how many, the age of the oldest in seconds."""

    def first_unread(self, table: str, shard_id: int, cursor: bytes, /) -> Statement:
        """The first position of the feed behind a cursor: ulid."""

    def feed_rows(self, table: str, shard_id: int, cursor: bytes, count: int, /) -> Statement:
        """The first rows of the feed behind a cursor: ulid, id, and the columns of the event."""

    def outbox_rows(self, table: str, shard_id: int, after: int, count: int, /) -> Statement:
        """The first rows of the outbox table behind a number: order_sequence, id, and the columns of the event."""


def catalog_of(connection_string: str) -> Catalog:
    """The catalog of the database that the setting SQL names."""
    return PostgresCatalog() if is_postgresql(connection_string) else SqlServerCatalog()
