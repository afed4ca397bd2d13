"""What there is on the feeds, how far consumers have come, and what waits for a reader or a sweeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from changefeed.statements import AsyncSession, Dialect, Operation, Session, Statement, run, run_async
from changefeed.ulid import START, time_of


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A consumer of a shard.

    Attributes:
        consumer: Its name.
        owner: The process that reads for it; None if there is none.
        cursor: The position that it stored last.
        behind: How many rows of the feed are behind that position; those of the outbox come on top.
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
        outbox_rows: How many committed events no reader has numbered yet.
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
        keep: How long positions are kept: `30d`, `12h` or `forever`. None: undecided, so everything is kept.
        rows: Number of positions on the feed, as the server estimates it.
        bytes: Size of the feed's positions with their index.
    """

    table: str
    shards: Sequence[ShardStatus]
    keep: str | None = None
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ChangeShardStatus:
    """A shard of generation 1.

    Attributes:
        feed_id: Its feed.
        shard: Its number.
        last_change_sequence_number: The last number given, or what was set before the first.
        waiting: How many committed changes have no number yet.
        lag_s: How long the oldest of them has been waiting, in seconds; None if there are none.
    """

    feed_id: int
    shard: int
    last_change_sequence_number: int
    waiting: int
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class SweepGroupStatus:
    """A sweep group: its number, and its shards by feed and number."""

    sweep_group: int
    shards: Sequence[ChangeShardStatus]


@dataclass(frozen=True, slots=True)
class Status:
    """All feeds by name, and all sweep groups by number."""

    feeds: Sequence[FeedStatus]
    sweep_groups: Sequence[SweepGroupStatus]


def status(session: Session) -> Status:
    """The state of all feeds, for a session of the tables' owner. Raises SetupError, DatabaseError."""
    return run(session, _status(session.dialect))


async def status_async(session: AsyncSession) -> Status:
    """As `status`."""
    return await run_async(session, _status(session.dialect))


def _status(dialect: Dialect) -> Operation[Status]:
    tables = yield Statement("select table_name, keep from changefeed.outbox_feed order by table_name")
    feeds = []
    for table, keep in tables.rows:
        feed = yield from _feed(dialect, table, keep)
        feeds.append(feed)
    return Status(feeds, (yield from _sweep_groups(dialect)))


def _feed(dialect: Dialect, table: str, keep: str | None) -> Operation[FeedStatus]:
    names = {
        kind: f"changefeed.{dialect.quoted(f'{kind}:{table}')}" for kind in ("outbox", "feed", "state", "claim")
    }
    outbox = yield Statement(
        f"select shard_id, count(*), min(time_hint), {dialect.now} from {names['outbox']} group by shard_id"
    )
    waiting = {row[0]: (row[1], _seconds(row[2], row[3])) for row in outbox.rows}
    state = yield Statement(f"select shard_id, ulid from {names['state']}")
    last = {row[0]: bytes(row[1]) for row in state.rows if bytes(row[1]) != START}
    claims = yield Statement(
        "select c.shard_id, c.consumer, c.owner, c.last_ulid, "
        f"(select count(*) from {names['feed']} f where f.shard_id = c.shard_id and f.ulid > c.last_ulid) "
        f"from {names['claim']} c order by c.consumer"
    )
    consumers: dict[int, list[ConsumerStatus]] = {}
    for shard_id, consumer, owner, cursor, behind in claims.rows:
        position = bytes(cursor)
        # A feed that was filled by hand has no last position, and no event behind its last cursor.
        given = max(last.get(shard_id, START), (yield from last_of_feed(names["feed"], shard_id)))
        one = ConsumerStatus(consumer, owner, position, behind, ahead=position > given)
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


def last_of_feed(feed: str, shard_id: int) -> Operation[bytes]:
    """The last position in the table `feed`, a quoted name; START where it has none."""
    result = yield Statement(
        f"select ulid from {feed} where shard_id = ? order by shard_id desc, ulid desc "
        "offset 0 rows fetch next 1 rows only",
        (shard_id,),
    )
    return bytes(result.rows[0][0]) if result.rows else START


def _sweep_groups(dialect: Dialect) -> Operation[list[SweepGroupStatus]]:
    result = yield Statement(
        "select s.sweep_group, s.feed_id, s.shard, s.last_change_sequence_number, "
        "(select count(*) from changefeed.change c "
        "where c.feed_id = s.feed_id and c.shard = s.shard and c.change_sequence_number is null), "
        "(select min(c.inserted_at) from changefeed.change c "
        "where c.feed_id = s.feed_id and c.shard = s.shard and c.change_sequence_number is null), "
        f"{dialect.now} from changefeed.shard s order by s.sweep_group, s.feed_id, s.shard"
    )
    groups: dict[int, list[ChangeShardStatus]] = {}
    for sweep_group, feed_id, shard, last, waiting, oldest, now in result.rows:
        groups.setdefault(sweep_group, []).append(
            ChangeShardStatus(feed_id, shard, last, waiting, _seconds(oldest, now))
        )
    return [SweepGroupStatus(sweep_group, shards) for sweep_group, shards in groups.items()]


def _seconds(since: Any, now: Any) -> float | None:
    # A time in the future, or a clock that steps: no time has passed.
    return None if since is None else max(float((now - since).total_seconds()), 0.0)
