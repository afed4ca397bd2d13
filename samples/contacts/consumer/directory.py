"""The directory: contacts as events told of them, in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
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
# One statement decides and writes: what is not newer than what is there changes nothing.
_TAKE_OVER = """
INSERT INTO aspects VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value WHERE excluded.version > version
"""
_ALL = "SELECT contact_id, aspect, value FROM aspects ORDER BY contact_id"
_ONE = "SELECT contact_id, aspect, value FROM aspects WHERE contact_id = ?"

_END = "deleted"
_WHOLE = frozenset({"name", "description", "email", "company"})


class Directory:
    """Contacts by id. Each aspect of one has the version it is of, so changes can come twice, and out of place.

    A deleted contact stays as a mark, so that what comes late does not bring it back. It belongs to one
    thread; a file can be read by other processes meanwhile.

    Args:
        path: The file; None keeps it in memory.

    Attributes:
        gaps: Which events have not come.
    """

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(":memory:" if path is None else path, isolation_level=None)
        # A message is completed once its change is stored: it must not be lost with the power, hence FULL.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_SCHEMA)
        self.gaps = Gaps(self._connection)

    def apply(self, change: Change) -> bool:
        """Take over what is newer than what is known, all of it or nothing; whether anything was."""
        aspects = {**change.aspects, _END: True} if change.deleted else change.aspects
        rows = [
            (change.contact_id, aspect, change.version, json.dumps(value)) for aspect, value in aspects.items()
        ]
        with closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                taken_over = cursor.executemany(_TAKE_OVER, rows).rowcount
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")
        return taken_over > 0

    def contact(self, contact_id: str) -> dict[str, Any] | None:
        """A contact; None where there is none, or it is deleted, or was not told of in full."""
        return next(self._contacts(_ONE, (contact_id,)), None)

    def contacts(self) -> Iterator[dict[str, Any]]:
        """All contacts that exist, by id: `id`, `name`, `description`, `email` and `company` of each."""
        return self._contacts(_ALL, ())

    def _contacts(self, query: str, parameters: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        gathered: dict[str, dict[str, Any]] = {}
        for contact_id, aspect, value in self._connection.execute(query, parameters):
            gathered.setdefault(contact_id, {})[aspect] = json.loads(value)
        for contact_id, aspects in gathered.items():
            # A subscription that is younger than a contact hears of its changes only.
            if aspects.keys() >= _WHOLE and _END not in aspects:
                yield {"id": contact_id, **aspects}

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
