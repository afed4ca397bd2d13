"""The tables of `SqliteStore`, and how those of earlier versions become them."""

from __future__ import annotations

import json
import sqlite3

VERSION = 2
"""1: an event was identified by its id alone, and the gaps of an entity were one JSON list. It has no row."""

# Topic and key are NULL if they are unknown: what version 1 has recorded. A handler with version 1 that still
# runs fails at these tables, before its effect, rather than handle again what this version has handled.
_TABLES = """
CREATE TABLE inbox_handled (
    consumer TEXT NOT NULL,
    id TEXT NOT NULL,
    key TEXT,
    topic TEXT,
    at REAL NOT NULL
);
CREATE UNIQUE INDEX inbox_handled_id ON inbox_handled (consumer, id, key, topic);
CREATE INDEX inbox_handled_at ON inbox_handled (consumer, at);
CREATE TABLE inbox_progress (
    progress INTEGER PRIMARY KEY,
    consumer TEXT NOT NULL,
    entity TEXT NOT NULL,
    key TEXT,
    topic TEXT,
    last INTEGER NOT NULL
);
CREATE UNIQUE INDEX inbox_progress_entity ON inbox_progress (consumer, entity, key, topic);
CREATE TABLE inbox_gaps (
    progress INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (progress, first)
) WITHOUT ROWID;
"""
_SET_ASIDE = """
ALTER TABLE inbox_handled RENAME TO inbox_handled_1;
ALTER TABLE inbox_progress RENAME TO inbox_progress_1;
DROP INDEX inbox_handled_at;
"""
_COPY = """
INSERT INTO inbox_handled (consumer, id, at) SELECT consumer, id, at FROM inbox_handled_1;
INSERT INTO inbox_progress (consumer, entity, last) SELECT consumer, entity, last FROM inbox_progress_1;
"""
_OLD_GAPS = (
    "SELECT new.progress, old.gaps FROM inbox_progress_1 AS old JOIN inbox_progress AS new"
    " USING (consumer, entity) WHERE old.gaps <> '[]'"
)
_DROP = """
DROP TABLE inbox_handled_1;
DROP TABLE inbox_progress_1;
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Create the tables, or migrate them, in one transaction. Of two processes, the second waits for the first.

    Raises:
        ValueError: A later version of this library has made the tables.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        _prepare(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS inbox_schema (version INTEGER NOT NULL)")
    (found,) = connection.execute("SELECT max(version) FROM inbox_schema").fetchone()
    if found == VERSION:
        return
    if found is not None:
        raise ValueError(f"The inbox tables have version {found}, and this library knows {VERSION}: update it.")
    old = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'inbox_handled'").fetchone()
    _run(connection, (_SET_ASIDE if old else "") + _TABLES)
    if old:
        _run(connection, _COPY)
        for progress, gaps in connection.execute(_OLD_GAPS).fetchall():
            rows = [(progress, first, last) for first, last in json.loads(gaps)]
            connection.executemany("INSERT INTO inbox_gaps VALUES (?, ?, ?)", rows)
        _run(connection, _DROP)
    connection.execute("INSERT INTO inbox_schema VALUES (?)", (VERSION,))


def _run(connection: sqlite3.Connection, statements: str) -> None:
    # `executescript` would commit first.
    for statement in filter(str.strip, statements.split(";")):
        connection.execute(statement)
