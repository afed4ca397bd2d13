"""The state of the feeds: sizes, positions of consumers, and rows that wait for a reader or a sweeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox_relay.changefeed.numbered.status import SweepGroupStatus, sweep_groups
from outbox_relay.changefeed.statements import AsyncSession, Dialect, Operation, Session, Statement, run, run_async
from outbox_relay.changefeed.tables import Tables
from outbox_relay.changefeed.ulid import START, time_of


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A consumer of a shard.

    Attributes:
        consumer: Its name.
        owner: The process that reads for it; None if there is none.
        cursor: The position that it stored last.
        behind: Number of rows of the feed behind that position; those of the outbox come on top.
        ahead: Whether that position is ahead of the last one given: it would skip events, and reading is refused.
    """

    consumer: str
    owner: str | None
    cursor: bytes
    behind: int
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A shard of a feed.

    Attributes:
        shard_id: The shard.
        outbox_rows: Number of committed events that no reader has numbered yet.
        oldest_s: How old the oldest of them is by its time_hint, in seconds; None if there are none.
        last_ulid: The last position given; None if there is none.
        last_time: The time in that position.
        consumers: The consumers that have a claim on it, by name.
    """

    shard_id: int
    outbox_rows: int
    oldest_s: float | None
    last_ulid: bytes | None
    last_time: datetime | None
    consumers: Sequence[ConsumerStatus]


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """The feed of a table.

    Attributes:
        table: Its name.
        shards: Its shards by number.
        keep: Retention of positions: `30d`, `12h` or `forever`. None: none is configured, so everything is kept.
        rows: Number of positions on the feed, as the server estimates it.
        bytes: Size of the feed's positions with their index.
    """

    table: str
    shards: Sequence[ShardStatus]
    keep: str | None = None
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a database's feeds.

    Attributes:
        feeds: All feeds by name.
        sweep_groups: All sweep groups by number.
    """

    feeds: Sequence[FeedStatus]
    sweep_groups: Sequence[SweepGroupStatus]


def status(session: Session) -> Status:
    """Return the state of all feeds, for a session of the tables' owner. Raises SetupError, DatabaseError."""
    return run(session, _status(session.dialect))


async def status_async(session: AsyncSession) -> Status:
    """Return the state of all feeds, for a session of the tables' owner. Raises SetupError, DatabaseError."""
    return await run_async(session, _status(session.dialect))


def _status(dialect: Dialect) -> Operation[Status]:
    tables = yield Statement("select table_name, keep from changefeed.outbox_feed order by table_name")
    feeds = []
    for table, keep in tables.rows:
        feed = yield from _feed(dialect, table, keep)
        feeds.append(feed)
    return Status(feeds, (yield from sweep_groups(dialect)))


def _feed(dialect: Dialect, table: str, keep: str | None) -> Operation[FeedStatus]:
    tables = Tables(dialect, table)
    waiting: dict[int, tuple[int, float | None]] = {
        shard_id: (each.rows, each.oldest_s) for shard_id, each in (yield from tables.waiting()).items()
    }
    given = yield from tables.last_positions()
    last = {shard_id: ulid for shard_id, ulid in given.items() if ulid != START}
    claims = yield Statement(
        "select c.shard_id, c.consumer, c.owner, c.last_ulid, "
        f"(select count(*) from {tables.feed} f where f.shard_id = c.shard_id and f.ulid > c.last_ulid) "
        f"from {tables.claim} c order by c.consumer"
    )
    consumers: dict[int, list[ConsumerStatus]] = {}
    for shard_id, consumer, owner, cursor, behind in claims.rows:
        position = bytes(cursor)
        # A feed that was filled by hand has no last position, and no event behind its last cursor.
        end = max(last.get(shard_id, START), (yield from tables.last_position(shard_id)))
        one = ConsumerStatus(consumer, owner, position, behind, ahead=position > end)
        consumers.setdefault(shard_id, []).append(one)
    rows, size = yield from dialect.size(table)
    return FeedStatus(
        table,
        [
            ShardStatus(
                shard_id,
                *waiting.get(shard_id, (0, None)),
                last.get(shard_id),
                time_of(last[shard_id]) if shard_id in last else None,
                consumers.get(shard_id, ()),
            )
            for shard_id in sorted({*waiting, *last, *consumers})
        ],
        keep,
        rows,
        size,
    )
