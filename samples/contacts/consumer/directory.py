"""The directory: contacts built from their events, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from samples.contacts.consumer.changes import Change
from samples.contacts.consumer.gaps import Gaps

_SCHEMA = """
CREATE TABLE IF NOT EXISTS aspects (
    contact_id TEXT NOT NULL,
    aspect TEXT NOT NULL,
    version INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (contact_id, aspect)
) WITHOUT ROWID
"""
# One statement compares and writes: only a newer version changes a row.
_APPLY = """
INSERT INTO aspects VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value WHERE excluded.version > version
"""
_ALL = "SELECT contact_id, aspect, value FROM aspects ORDER BY contact_id"
_ONE = "SELECT contact_id, aspect, value FROM aspects WHERE contact_id = ?"

_DELETED = "deleted"
_REQUIRED = frozenset({"name", "description", "email", "company"})


def rows_of(change: Change) -> list[tuple[str, str, int, str]]:
    """Return the rows that a change stores: contact id, aspect, version and value, as JSON."""
    aspects = {**change.aspects, _DELETED: True} if change.deleted else change.aspects
    return [(change.contact_id, aspect, change.version, json.dumps(value)) for aspect, value in aspects.items()]


def contacts_of(rows: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the contacts that rows of contact id, aspect and value are, in the order of their first rows."""
    found: dict[str, dict[str, Any]] = {}
    for contact_id, aspect, value in rows:
        found.setdefault(contact_id, {})[aspect] = json.loads(value)
    for contact_id, aspects in found.items():
        # A subscription created after a contact receives only its later events.
        if aspects.keys() >= _REQUIRED and _DELETED not in aspects:
            yield {"id": contact_id, **aspects}


class Directory:
    """Contacts by id. Each aspect of a contact has its own version, so changes may arrive twice and out of order.

    A deleted contact is kept as a tombstone, so that a late event does not restore it. A directory belongs to one
    thread; other processes may read its file.

    Args:
        path: The file; None keeps the directory in memory.

    Attributes:
        gaps: The missing events.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        # A message is completed once its change is stored. FULL makes the change survive a power failure.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_SCHEMA)
        self.gaps = Gaps(self._connection)

    def apply(self, change: Change) -> bool:
        """Apply the aspects that are newer than the stored ones, in one transaction. Return whether any was."""
        with self._connection:  # commits, or rolls back if it raises
            self._connection.execute("BEGIN IMMEDIATE")
            applied = self._connection.executemany(_APPLY, rows_of(change)).rowcount
        return applied > 0

    def contact(self, contact_id: str) -> dict[str, Any] | None:
        """Return a contact; None if it is unknown, incomplete or deleted."""
        return next(self._contacts(_ONE, (contact_id,)), None)

    def contacts(self) -> Iterator[dict[str, Any]]:
        """Yield all contacts, sorted by id, with `id`, `name`, `description`, `email` and `company`."""
        return self._contacts(_ALL, ())

    def _contacts(self, query: str, parameters: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        return contacts_of(self._connection.execute(query, parameters))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
