"""Finds missing events of a contact by their sequence numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

_SCHEMA = """
CREATE TABLE IF NOT EXISTS last_events (
    contact_id TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS missing_events (
    contact_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (contact_id, sequence)
) WITHOUT ROWID;
"""
_LAST = "SELECT sequence FROM last_events WHERE contact_id = ?"
_ADVANCE = "INSERT INTO last_events VALUES (?, ?) ON CONFLICT DO UPDATE SET sequence = excluded.sequence"
_ADD_MISSING = "INSERT INTO missing_events VALUES (?, ?)"
_REMOVE_MISSING = "DELETE FROM missing_events WHERE contact_id = ? AND sequence = ?"
_ALL = "SELECT contact_id, sequence FROM missing_events ORDER BY contact_id, sequence"


class Gaps:
    """The missing events.

    A contact's events are numbered without gaps, so a skipped number is an event that did not arrive: it is in
    quarantine, or it expired before it was relayed. It may still arrive if operators release it.

    Events before the first one received do not count as missing, because a subscription starts when it is created.

    Args:
        connection: In autocommit mode. The tables are created in its database.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.executescript(_SCHEMA)

    def note(self, contact_id: str, sequence: int) -> range:
        """Record an event, which may be a repetition. Return the numbers that it shows to be missing."""
        with self._connection:  # commits, or rolls back if it raises
            self._connection.execute("BEGIN IMMEDIATE")
            row = self._connection.execute(_LAST, (contact_id,)).fetchone()
            last = sequence - 1 if row is None else row[0]
            if sequence <= last:
                self._connection.execute(_REMOVE_MISSING, (contact_id, sequence))
                return range(0)
            missing = range(last + 1, sequence)
            self._connection.executemany(_ADD_MISSING, ((contact_id, number) for number in missing))
            self._connection.execute(_ADVANCE, (contact_id, sequence))
        return missing

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield contact id and sequence number of each missing event, sorted."""
        yield from self._connection.execute(_ALL)
