"""What the console reads of an SQL outbox, in the SQL that all databases have in common."""

from __future__ import annotations

from changefeed.statements import Dialect, Statement

_AT_MOST = "offset 0 rows fetch next ? rows only"


class Statements:
    """The statements on one feed; `table` is `schema.Table`, as it was given to setup_feed.

    None of them takes a lock or gives a position: they read tables, and call nothing.
    """

    def __init__(self, dialect: Dialect, table: str) -> None:
        quoted = dialect.quoted
        self._dialect = dialect
        schema, _, name = table.partition(".")
        self.events = f"{quoted(schema)}.{quoted(name)}"
        self.outbox, self.feed, self.claim = (
            f"changefeed.{quoted(f'{part}:{table}')}" for part in ("outbox", "feed", "claim")
        )

    def numbered(self, shard_id: int, cursor: bytes, limit: int) -> Statement:
        """The events behind a position: ulid, id, and the columns of the event."""
        return Statement(
            f"select f.ulid, f.id, e.* from {self.feed} f left join {self.events} e on e.id = f.id "
            f"where f.shard_id = ? and f.ulid > ? order by f.ulid {_AT_MOST}",
            (shard_id, self._dialect.ulid(cursor), limit),
        )

    def unnumbered(self, shard_id: int, after: int, limit: int) -> Statement:
        """The events that have no position yet: order_sequence, time_hint, id, and the columns of the event."""
        return Statement(
            f"select o.order_sequence, o.time_hint, o.id, e.* from {self.outbox} o "
            f"left join {self.events} e on e.id = o.id "
            f"where o.shard_id = ? and o.order_sequence > ? order by o.order_sequence {_AT_MOST}",
            (shard_id, after, limit),
        )

    def claims(self, consumer: str) -> Statement:
        """The claims of a consumer: shard_id, owner, last_ulid."""
        return Statement(
            f"select shard_id, owner, last_ulid from {self.claim} where consumer = ? order by shard_id",
            (consumer,),
        )

    def numbered_of_key(self, partition_key: str, limit: int) -> Statement:
        """The last events of a key, the latest first: shard_id, ulid, id, and the columns of the event."""
        return Statement(
            f"select f.shard_id, f.ulid, f.id, e.* from {self.events} e join {self.feed} f on f.id = e.id "
            f"where e.partition_key = ? order by f.ulid desc {_AT_MOST}",
            (partition_key, limit),
        )

    def unnumbered_of_key(self, partition_key: str, limit: int) -> Statement:
        """Those that have no position yet: shard_id, order_sequence, time_hint, id, the columns of the event."""
        return Statement(
            f"select o.shard_id, o.order_sequence, o.time_hint, o.id, e.* from {self.outbox} o "
            f"join {self.events} e on e.id = o.id "
            f"where e.partition_key = ? order by o.order_sequence desc {_AT_MOST}",
            (partition_key, limit),
        )

    def data(self, partition_key: str, ids: list[str]) -> Statement:
        """The events of these ids, with all of their columns."""
        marks = ", ".join("?" * len(ids))
        return Statement(
            f"select e.* from {self.events} e where e.partition_key = ? and e.id in ({marks})",
            (partition_key, *ids),
        )

    def grants(self, reader: str = "<role>") -> str:
        """What the console's role needs, as statements."""
        tables = ", ".join((self.outbox, self.feed, self.claim, self.events, "relay.item"))
        if self._dialect.name == "postgresql":
            schema = self.events.partition(".")[0]
            return (
                f"grant usage on schema changefeed, relay, {schema} to {reader}; "
                f"grant select on {tables} to {reader};"
            )
        each = tables.split(", ")
        return " ".join(f"grant select on {table} to {reader};" for table in each)
