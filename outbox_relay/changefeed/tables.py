"""The tables of one feed as they are, for whoever shows, checks or repeats what is on it.

Nothing here takes a lock or gives a position, as `Feed.read` does. The SQL is what all databases have in common.
Other packages ask here, and write no name of a feed's table themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox_relay.changefeed.statements import Dialect, Entry, Operation, Result, Row, Statement
from outbox_relay.changefeed.ulid import START

_AT_MOST = "offset 0 rows fetch next ? rows only"

_KINDS = ("outbox", "feed", "state", "claim", "read_events", "read_feed", "has_news")


def names_of(table: str) -> dict[str, str]:
    """Return the names of a feed's objects in the schema `changefeed`, by kind, not quoted."""
    return {kind: f"{kind}:{table}" for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class Unnumbered:
    """An event that was committed and that no reader has given a position yet.

    Attributes:
        shard_id: Its shard.
        number: Its place among the events of the shard that have no position.
        time_hint: When it happened, as its writer says, in UTC; without a time zone if the database has none. None
            if Python has no such time.
        entry: The event; its `ulid` is START.
    """

    shard_id: int
    number: int
    time_hint: datetime | None
    entry: Entry


@dataclass(frozen=True, slots=True)
class Waiting:
    """The events of a shard that have no position.

    Attributes:
        rows: How many there are.
        oldest_s: The age of the oldest in seconds, by the times that their writers gave; 0 if those are no times.
    """

    rows: int
    oldest_s: float


class Tables:
    """Operations on the tables of one feed; carry them out with `run` or `run_async`.

    Those that return events are for event tables whose primary key has one column that is unique by itself.

    Attributes:
        dialect: That of the database.
        table: The name that was given to setup_feed.
        events, outbox, feed, state, claim: The names of the tables, qualified and quoted.
    """

    def __init__(self, dialect: Dialect, table: str, key: str = "partition_key", id_column: str = "id") -> None:
        """Name the tables of a feed.

        Args:
            dialect: That of the database.
            table: `schema.Table`, as it was given to setup_feed.
            key: The column of the event table that has an event's key.
            id_column: The column of its primary key that has an event's id.
        """
        self.dialect = dialect
        self.table = table
        self._key = f"e.{dialect.quoted(key)}"
        self._id_column = id_column
        self._id = dialect.quoted(id_column)
        self._time_hint = dialect.datable("o.time_hint")
        schema, _, name = table.partition(".")
        names = {kind: f"changefeed.{dialect.quoted(own)}" for kind, own in names_of(table).items()}
        self.events: str = f"{dialect.quoted(schema)}.{dialect.quoted(name)}"
        self.outbox: str = names["outbox"]
        self.feed: str = names["feed"]
        self.state: str = names["state"]
        self.claim: str = names["claim"]

    def numbered(self, shard_id: int, cursor: bytes, limit: int) -> Operation[list[Entry]]:
        """Return the first events behind a position."""
        result = yield Statement(
            f"select f.ulid, f.{self._id}, e.* from {self.feed} f "
            f"left join {self.events} e on e.{self._id} = f.{self._id} "
            f"where f.shard_id = ? and f.ulid > ? order by f.ulid {_AT_MOST}",
            (shard_id, self.dialect.ulid(cursor), limit),
        )
        return [self._entry(result, row, 1, bytes(row[0])) for row in result.rows]

    def unnumbered(self, shard_id: int, after: int, limit: int) -> Operation[list[Unnumbered]]:
        """Return the first events of a shard without a position, behind a number."""
        result = yield Statement(
            f"select o.shard_id, o.order_sequence, {self._time_hint}, o.{self._id}, e.* from {self.outbox} o "
            f"left join {self.events} e on e.{self._id} = o.{self._id} "
            f"where o.shard_id = ? and o.order_sequence > ? order by o.order_sequence {_AT_MOST}",
            (shard_id, after, limit),
        )
        return [self._unnumbered(result, row) for row in result.rows]

    def numbered_of_key(self, partition_key: str, limit: int) -> Operation[list[tuple[int, Entry]]]:
        """Return the last events of a key, the latest first, each with its shard."""
        result = yield Statement(
            f"select f.shard_id, f.ulid, f.{self._id}, e.* from {self.events} e "
            f"join {self.feed} f on f.{self._id} = e.{self._id} "
            f"where {self._key} = ? order by f.ulid desc {_AT_MOST}",
            (partition_key, limit),
        )
        return [(row[0], self._entry(result, row, 2, bytes(row[1]))) for row in result.rows]

    def unnumbered_of_key(self, partition_key: str, limit: int) -> Operation[list[Unnumbered]]:
        """Return those events of a key that have no position, the latest first."""
        result = yield Statement(
            f"select o.shard_id, o.order_sequence, {self._time_hint}, o.{self._id}, e.* from {self.outbox} o "
            f"join {self.events} e on e.{self._id} = o.{self._id} "
            f"where {self._key} = ? order by o.order_sequence desc {_AT_MOST}",
            (partition_key, limit),
        )
        return [self._unnumbered(result, row) for row in result.rows]

    def ids_between(self, shard_id: int, after: bytes, until: bytes, partition_key: str) -> Operation[list[Any]]:
        """Return the ids of the events of a key with `after < position <= until`."""
        result = yield Statement(
            f"select e.{self._id} from {self.feed} f join {self.events} e on e.{self._id} = f.{self._id} "
            f"where f.shard_id = ? and f.ulid > ? and f.ulid <= ? and {self._key} = ?",
            (shard_id, self.dialect.ulid(after), self.dialect.ulid(until), partition_key),
        )
        return [row[0] for row in result.rows]

    def rows(self, partition_key: str, ids: Sequence[str]) -> Operation[list[Entry]]:
        """Return the existing events of a key with these ids; `ulid` is START."""
        result = yield Statement(
            f"select e.* from {self.events} e "
            f"where {self._key} = ? and e.{self._id} in ({', '.join('?' * len(ids))})",
            (partition_key, *ids),
        )
        return [Entry(START, dict(zip(result.columns, row, strict=True)), {}) for row in result.rows]

    def row(self, key: Mapping[str, Any]) -> Operation[Mapping[str, Any] | None]:
        """Return the event with these values of the columns of its primary key, or None if there is none."""
        columns = " and ".join(f"e.{self.dialect.quoted(name)} = ?" for name in key)
        result = yield Statement(f"select e.* from {self.events} e where {columns}", tuple(key.values()))
        return dict(zip(result.columns, result.rows[0], strict=True)) if result.rows else None

    def positions(self, identifier: str) -> Operation[list[tuple[int, bytes]]]:
        """Return the shards and positions of an event. Scans the feed, which has no index on ids."""
        result = yield Statement(f"select shard_id, ulid from {self.feed} where {self._id} = ?", (identifier,))
        return [(row[0], bytes(row[1])) for row in result.rows]

    def position(self, shard_id: int, cursor: bytes, identifier: str) -> Operation[bytes | None]:
        """Return the position of an event that is behind a cursor, or None if it has none there."""
        result = yield Statement(
            f"select ulid from {self.feed} where shard_id = ? and ulid > ? and {self._id} = ?",
            (shard_id, self.dialect.ulid(cursor), identifier),
        )
        return bytes(result.rows[0][0]) if result.rows else None

    def first_position(self, shard_id: int, cursor: bytes) -> Operation[bytes | None]:
        """Return the first position behind a cursor, or None if there is none."""
        result = yield Statement(
            f"select ulid from {self.feed} where shard_id = ? and ulid > ? order by ulid {_AT_MOST}",
            (shard_id, self.dialect.ulid(cursor), 1),
        )
        return bytes(result.rows[0][0]) if result.rows else None

    def last_position(self, shard_id: int) -> Operation[bytes]:
        """Return the last position on the feed, which may have been filled by hand; START if there is none."""
        result = yield Statement(
            f"select ulid from {self.feed} where shard_id = ? order by shard_id desc, ulid desc {_AT_MOST}",
            (shard_id, 1),
        )
        return bytes(result.rows[0][0]) if result.rows else START

    def last_positions(self) -> Operation[dict[int, bytes]]:
        """Return the last position given in each shard; a shard in which none was given may be missing."""
        result = yield Statement(f"select shard_id, ulid from {self.state}")
        return {row[0]: bytes(row[1]) for row in result.rows}

    def waiting(self) -> Operation[dict[int, Waiting]]:
        """Return the events without a position, by shard."""
        result = yield Statement(
            f"select o.shard_id, count(*), min({self._time_hint}), {self.dialect.now} from {self.outbox} o "
            "group by o.shard_id order by o.shard_id"
        )
        return {row[0]: Waiting(row[1], seconds_between(row[2], row[3])) for row in result.rows}

    def exist(self) -> Operation[bool]:
        """Return True if there is an event table."""
        schema, _, name = self.table.partition(".")
        result = yield Statement(
            "select 1 from information_schema.tables where table_schema = ? and table_name = ?", (schema, name)
        )
        return bool(result.rows)

    def identity(self) -> Operation[str]:
        """Return a text that tells this feed from another feed of the same name."""
        text = "select current_database(), to_regclass(?)::oid::bigint"
        if self.dialect.name == "sqlserver":
            text = "select db_name(), object_id(?)"
        result = yield Statement(text, (self.claim,))
        database, number = result.rows[0]
        return f"{database}/{self.table}/{number}"

    def append(self, shard_id: int, identifier: str, key: Sequence[str]) -> Operation[None]:
        """Put an event on the feed, within the transaction that has inserted its row; `key` is the primary key."""
        names = [self.dialect.quoted(name) for name in key]
        yield Statement(
            f"insert into {self.outbox} (shard_id, {', '.join(names)}) "
            f"select ?, {', '.join(f'e.{name}' for name in names)} from {self.events} e where e.{self._id} = ?",
            (shard_id, identifier),
        )

    def _entry(self, result: Result, row: Row, start: int, ulid: bytes = START) -> Entry:
        """Return an entry from a row that has the id at `start`, then the event's columns.

        They are all NULL if there is no row.
        """
        event = dict(zip(result.columns[start + 1 :], row[start + 1 :], strict=True))
        if event[self._id_column] is None:
            return Entry(ulid, None, {self._id_column: row[start]})
        return Entry(ulid, event, {})

    def _unnumbered(self, result: Result, row: Row) -> Unnumbered:
        shard_id, number, time_hint = row[:3]
        return Unnumbered(shard_id, number, time_hint, self._entry(result, row, 3))


def seconds_between(since: Any, now: Any) -> float:
    """Return the age in seconds between two times of the database; 0 without a time or for one in the future."""
    return 0.0 if since is None else max(float((now - since).total_seconds()), 0.0)
