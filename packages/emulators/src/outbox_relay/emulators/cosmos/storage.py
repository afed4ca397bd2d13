"""The SQLite file of an account: its schema, its settings, its one connection.

Write-ahead log, one writer, synchronous NORMAL: acknowledged writes survive a killed process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_MEMORY = ":memory:"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS databases(
    id TEXT PRIMARY KEY, rid BLOB NOT NULL, ts INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS containers(
    number INTEGER PRIMARY KEY AUTOINCREMENT, database_id TEXT NOT NULL, id TEXT NOT NULL, rid BLOB NOT NULL,
    ts INTEGER NOT NULL, version INTEGER NOT NULL, definition TEXT NOT NULL, UNIQUE(database_id, id));
CREATE TABLE IF NOT EXISTS partitions(
    number INTEGER PRIMARY KEY AUTOINCREMENT, container INTEGER NOT NULL, lsn INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS partitions_by_container ON partitions(container);
-- A split of a partition, or with an empty cut the merge of a partition with the next one.
CREATE TABLE IF NOT EXISTS splits(
    number INTEGER PRIMARY KEY AUTOINCREMENT, container INTEGER NOT NULL, partition INTEGER NOT NULL,
    cut TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS offers(
    id TEXT PRIMARY KEY, resource TEXT NOT NULL UNIQUE, resource_rid TEXT NOT NULL, ts INTEGER NOT NULL,
    version INTEGER NOT NULL, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS items(
    number INTEGER PRIMARY KEY, partition INTEGER NOT NULL, pk TEXT NOT NULL, id TEXT NOT NULL,
    epk TEXT NOT NULL, lsn INTEGER NOT NULL, position INTEGER NOT NULL, ts INTEGER NOT NULL,
    expires INTEGER, text TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS items_by_id ON items(partition, pk, id);
DROP INDEX IF EXISTS items_by_lsn;
CREATE INDEX IF NOT EXISTS items_by_commit ON items(partition, lsn, position);
CREATE INDEX IF NOT EXISTS items_by_expiry ON items(expires) WHERE expires IS NOT NULL;

CREATE TABLE IF NOT EXISTS unique_values(
    partition INTEGER NOT NULL, pk TEXT NOT NULL, key INTEGER NOT NULL, value TEXT NOT NULL,
    number INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS unique_values_by_value ON unique_values(partition, pk, key, value);
CREATE INDEX IF NOT EXISTS unique_values_by_number ON unique_values(number);
CREATE TRIGGER IF NOT EXISTS forget_unique_values AFTER DELETE ON items BEGIN
    DELETE FROM unique_values WHERE number=OLD.number;
END;
"""

NOT_EXPIRED = "(expires IS NULL OR expires > :now)"


class Storage:
    """The connection. Everything runs on the event loop's thread, one statement after the other."""

    def __init__(self, database: str | Path = IN_MEMORY) -> None:
        """Open or create the file. Raises RuntimeError if another process has it open."""
        try:
            self._connection = sqlite3.connect(
                str(database), isolation_level=None, timeout=0, cached_statements=256
            )
        except sqlite3.OperationalError as error:
            raise RuntimeError(f"Cannot open {database}: {error}.") from error
        self.execute = self._connection.execute
        try:
            self.execute("PRAGMA locking_mode=EXCLUSIVE")
            self.execute("PRAGMA journal_mode=WAL")
            self.execute("PRAGMA synchronous=NORMAL")
            # Without this, INSERT OR REPLACE would leave the unique values of the replaced item behind.
            self.execute("PRAGMA recursive_triggers=ON")
            self._connection.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise RuntimeError(f"Cannot open {database}: {error}. Maybe another server uses the file.") from error

    def insert(self, statement: str, values: tuple[object, ...]) -> int:
        """Insert a row; returns its number."""
        number = self.execute(statement, values).lastrowid
        assert number is not None
        return number

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one SQLite transaction."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()
