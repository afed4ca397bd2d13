"""The server's handling of each statement that changefeed sends: PostgreSQL's SQL, as far as it is used here.

A statement that is done at once returns its result. One with several steps, between which others may commit, is a
generator: it yields `MOMENT` where time may pass, and a lock to wait for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

from outbox_relay.changefeed.errors import DatabaseError
from outbox_relay.changefeed.statements import Result, Statement
from verification.simulation.sql.locks import Lock
from verification.simulation.sql.tables import ClaimRow, Placed, Tables, Waiting

MOMENT = None
"""A step during which others may commit."""

Steps = Generator[Lock | None, None, Result]
Noted = Callable[[ClaimRow, ClaimRow], None]

_CLAIM_COLUMNS = tuple(field.name for field in fields(ClaimRow))
_READ = re.compile(r'select ulid, missing, \(event\)\.\* from changefeed\."read_events:[^"]+"\(\?, \?, \?, \?\)')
_NEWS = re.compile(r'select changefeed\."has_news:[^"]+"\(\?, \?\)')
_RETAIN = re.compile(r'select changefeed\."retain:[^"]+"\(\)')
_CHANNEL = re.compile(r"select channel from changefeed\.outbox_feed where table_name = \?")
_CLAIMS = re.compile(
    r'select (?P<columns>[a-z_, ]+) from changefeed\."claim:[^"]+" where (?P<conditions>.+)|'
    r'insert into changefeed\."claim:[^"]+" \((?P<names>[a-z_, ]+)\) values \([?, ]+\)|'
    r'update changefeed\."claim:[^"]+" set (?P<assignments>.+) where (?P<changed>.+)'
)
_COUNTED = re.compile(r"(\w+) = \1 \+ 1")
_CONDITION = re.compile(r"(?P<column>\w+) (?:= \?|in \((?P<marks>[?, ]+)\))")


class Statements:
    """Carries out the statements of one feed.

    Attributes:
        channel: Where commits notify readers; None if they do not.
    """

    def __init__(
        self, tables: Tables, lock_of: Callable[[str, int], Lock], shuffle: Callable[[Any], None]
    ) -> None:
        """`lock_of` gives the lock of a table's rows of a shard; `shuffle` what has no order."""
        self.tables = tables
        self.channel: str | None = None
        self._lock_of = lock_of
        self._shuffle = shuffle

    def carry_out(self, statement: Statement, noted: Noted) -> Result | Steps:
        """Return the result, or the steps to it.

        Calls `noted` with the row of a claim before and after each change. Raises ChangefeedError.
        """
        sql, values = statement.sql, [_plain(each) for each in statement.parameters]
        if _READ.fullmatch(sql):
            return self._read(*values)
        if _NEWS.fullmatch(sql):
            return _rows(("has_news",), [(self.tables.has_news(*values),)])
        if _RETAIN.fullmatch(sql):
            return _rows(("retain",), [(self.tables.retain(),)])
        if _CHANNEL.fullmatch(sql):
            return _rows(("channel",), [(self.channel,)])
        found = _CLAIMS.fullmatch(sql)
        if found is None:
            raise DatabaseError(f"simulation/sql/statements.py does not know the statement {sql!r}: add it there")
        if found["columns"]:
            return self._select(found["columns"].split(", "), found["conditions"], values)
        if found["names"]:
            return self._insert(dict(zip(found["names"].split(", "), values, strict=True)))
        return self._update(found["assignments"], found["changed"], values, noted)

    # Reading: read_events and read_feed, statement by statement.

    def _read(self, shard: int, cursor: bytes, rows: int, max_bytes: int | None) -> Steps:
        tables = self.tables
        tables.check_read(rows)
        page: Sequence[Placed] = tables.page(shard, cursor, rows)
        taken: Sequence[Waiting] = ()
        own: Sequence[Placed] = ()
        if page:
            tables.check_low_water(shard, cursor)
        else:
            yield MOMENT
            if tables.is_head(shard, cursor):
                return _rows(("ulid", "missing"), ())
            yield MOMENT
            page, taken = yield from self._look_under_lock(shard, cursor, rows)
            if not page:
                page = own = tables.numbered(shard, taken, rows)
                # Others may have locked the rows that are deleted.
                yield self._lock_of("outbox", shard)
            tables.check_low_water(shard, cursor)
        yield MOMENT
        last = self._last_within(page, max_bytes)
        seen = sorted((*tables.page(shard, cursor, rows), *own))
        result = self._joined([row for row in seen if row.ulid <= last])
        tables.check_low_water(shard, cursor)
        yield MOMENT
        # The transaction commits.
        tables.place(shard, taken, own)
        return result

    def _look_under_lock(
        self, shard: int, cursor: bytes, rows: int
    ) -> Generator[Lock | None, None, tuple[Sequence[Placed], Sequence[Waiting]]]:
        """Return the page that another reader has numbered meanwhile; else the rows to number, as they are now."""
        yield self.shard_lock(shard)
        page = self.tables.page(shard, cursor, rows)
        if page:
            return page, ()
        yield MOMENT
        return (), self.tables.taken(shard, rows)

    def shard_lock(self, shard: int) -> Lock:
        """Return the lock of whoever numbers a shard."""
        return self._lock_of("state", shard)

    def _last_within(self, page: Sequence[Placed], max_bytes: int | None) -> bytes:
        """Return the last position of a page of at most `max_bytes`; a page has at least one event."""
        last, left = page[0].ulid if page else b"", max_bytes
        for row in page:
            if left is not None:
                left -= _size(self.tables.events.get(row.identifier))
                if left < 0:
                    break
            last = row.ulid
        return last

    def _joined(self, page: Sequence[Placed]) -> Result:
        columns: tuple[str, ...] = ()
        rows = []
        for placed in page:
            event = self.tables.events.get(placed.identifier)
            if event is None:
                rows.append((placed.ulid, json.dumps({"id": placed.identifier})))
            else:
                columns = tuple(event)
                rows.append((placed.ulid, None, *event.values()))
        width = 2 + len(columns)
        return _rows(("ulid", "missing", *columns), [(*row, *[None] * (width - len(row))) for row in rows])

    # Claims: each statement is one of outbox_relay/changefeed/claims.py, carried out as it is written.

    def _matching(self, conditions: str, values: list[Any]) -> list[ClaimRow]:
        found = list(self.tables.claims.values())
        for condition in conditions.split(" and "):
            match = _CONDITION.fullmatch(condition)
            if match is None:
                raise DatabaseError(f"simulation/sql/statements.py does not know the condition {condition!r}")
            allowed = [values.pop(0) for _ in (match["marks"] or "?").split(", ")]
            found = [row for row in found if getattr(row, match["column"]) in allowed]
        return found

    def _select(self, columns: Sequence[str], conditions: str, values: list[Any]) -> Result:
        found = self._matching(conditions, values)
        self._shuffle(found)
        return _rows(columns, [tuple(getattr(row, column) for column in columns) for row in found])

    def _insert(self, values: Mapping[str, Any]) -> Result:
        row = ClaimRow(**values)
        key = row.consumer, row.shard_id
        if key in self.tables.claims:
            raise DatabaseError("duplicate key value violates unique constraint (SQLSTATE 23505)")
        self.tables.claims[key] = row
        return Result((), (), 1)

    def _update(self, assignments: str, conditions: str, values: list[Any], noted: Noted) -> Result:
        parts = assignments.split(", ")
        given = [values.pop(0) for part in parts if part.endswith("= ?")]
        found = self._matching(conditions, values)
        for row in found:
            before = _copy(row)
            left = list(given)
            for part in parts:
                self._assign(row, part, left)
            noted(before, row)
        return Result((), (), len(found))

    def _assign(self, row: ClaimRow, assignment: str, given: list[Any]) -> None:
        column, _, value = assignment.partition(" = ")
        if _COUNTED.fullmatch(assignment):
            setattr(row, column, getattr(row, column) + 1)
        elif value == "?":
            setattr(row, column, given.pop(0))
        elif value == "null":
            setattr(row, column, None)
        elif value == "current_timestamp":
            setattr(row, column, self.tables.now_ms() / 1000)
        else:
            raise DatabaseError(f"simulation/sql/statements.py does not know the assignment {assignment!r}")


def _rows(columns: Sequence[str], rows: Sequence[Any]) -> Result:
    return Result(columns, rows, len(rows))


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


def _copy(row: ClaimRow) -> ClaimRow:
    return ClaimRow(*(getattr(row, name) for name in _CLAIM_COLUMNS))


def _size(event: Mapping[str, Any] | None) -> int:
    """Return the bytes of a row's text, as PostgreSQL writes it: (a,b,,"c")."""
    return 0 if event is None else 1 + sum(1 + len(str(value or "").encode()) for value in event.values())
