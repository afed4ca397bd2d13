"""The gaps: which events of a contact have not come, by the numbers that events carry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

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
_MISS = "INSERT INTO missing_events VALUES (?, ?)"
_COME = "DELETE FROM missing_events WHERE contact_id = ? AND sequence = ?"
_ALL = "SELECT contact_id, sequence FROM missing_events ORDER BY contact_id, sequence"


class Gaps:
    """The numbers of a contact's events go up by one, so one that is skipped belongs to an event that has not
    come: it is in quarantine, or expired before it was relayed. It may still come, when operators release it.

    What was told before the first event that came is not missing: a subscription begins when it is created.

    Args:
        connection: In autocommit mode; the tables are made in its database.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.executescript(_SCHEMA)

    def note(self, contact_id: str, sequence: int) -> range:
        """Take note that an event has come, again perhaps; the numbers that were found missing by it."""
        with closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                missing = self._note(cursor, contact_id, sequence)
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")
        return missing

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """What is missing: contact and number, in order."""
        yield from self._connection.execute(_ALL)

    @staticmethod
    def _note(cursor: sqlite3.Cursor, contact_id: str, sequence: int) -> range:
        known = cursor.execute(_LAST, (contact_id,)).fetchone()
        last = sequence - 1 if known is None else known[0]
        if sequence <= last:
            cursor.execute(_COME, (contact_id, sequence))
            return range(0)
        missing = range(last + 1, sequence)
        cursor.executemany(_MISS, ((contact_id, number) for number in missing))
        cursor.execute(_ADVANCE, (contact_id, sequence))
        return missing
