"""Retention: deletes positions of a feed that no consumer needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from changefeed.errors import ArgumentError
from changefeed.statements import AsyncSession, Dialect, Operation, Session, Statement, run, run_async
from changefeed.ulid import START, at

# From 5000 locks in a statement SQL Server may lock the whole table.
_ROWS = 900


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted in one shard.

    Attributes:
        shard_id: The shard.
        rows: How many rows of the feed were deleted.
        held_by: The consumer that has not read far enough for all older rows to be deleted; None if there is
        none.
    """

    shard_id: int
    rows: int
    held_by: str | None


def prune(session: Session, table: str, before: datetime) -> list[Pruned]:
    """Delete the rows of a feed whose ULID is of a time before `before`, a page at a time.

    No row is deleted that a consumer with a row in `claim:schema.Table` has not read. A consumer that has claims
    in other shards only has read nothing of this one. Delete the rows of a consumer that is gone from
    `claim:schema.Table`. The event table stays as it is: delete from it what is not on the feed any more. Who
    reads from the beginning gets what is left.

    Args:
        session: A session of the tables' owner.
        table: `schema.Table`, as it was given to setup_feed.
        before: With a time zone, and not in the future.

    Returns:
        What was deleted in each shard, those included in which there was nothing to delete.

    Raises:
        ArgumentError: `before` has no time zone, or is in the future.
        SetupError: The table has no feed.
        DatabaseError
    """
    return run(session, _prune(session.dialect, table, before))


async def prune_async(session: AsyncSession, table: str, before: datetime) -> list[Pruned]:
    """As `prune`."""
    return await run_async(session, _prune(session.dialect, table, before))


def _prune(dialect: Dialect, table: str, before: datetime) -> Operation[list[Pruned]]:
    if before.utcoffset() is None:
        raise ArgumentError("the time before which to delete has no time zone")
    if before > datetime.now(UTC):
        raise ArgumentError("the time before which to delete is in the future")
    # Raises where there is no such feed.
    yield from dialect.channel(table)
    shards = yield Statement(f"select shard_id from {_name(dialect, 'state', table)} order by shard_id")
    pruned = []
    for (shard_id,) in shards.rows:
        pruned.append((yield from _prune_shard(dialect, table, shard_id, at(before))))
    return pruned


def _prune_shard(dialect: Dialect, table: str, shard_id: int, before: bytes) -> Operation[Pruned]:
    feed = _name(dialect, "feed", table)
    rows = 0
    while True:
        held_by, read_up_to = yield from _slowest(dialect, table, shard_id)
        # The row at a cursor has been read: the first to keep is the one behind it.
        kept_from = before if held_by is None else min(before, _next(read_up_to))
        page = yield Statement(
            f"select ulid from {feed} where shard_id = ? and ulid < ? "
            f"order by ulid offset 0 rows fetch next {_ROWS} rows only",
            (shard_id, dialect.ulid(kept_from)),
        )
        if page.rows:
            last = dialect.ulid(bytes(page.rows[-1][0]))
            deleted = yield Statement(f"delete from {feed} where shard_id = ? and ulid <= ?", (shard_id, last))
            rows += deleted.changed
        if len(page.rows) < _ROWS:
            kept = yield Statement(
                f"select count(*) from {feed} where shard_id = ? and ulid < ?", (shard_id, dialect.ulid(before))
            )
            return Pruned(shard_id, rows, held_by if kept.rows[0][0] else None)


def _slowest(dialect: Dialect, table: str, shard_id: int) -> Operation[tuple[str | None, bytes]]:
    """The consumer that has read least of a shard, and up to where."""
    claims = _name(dialect, "claim", table)
    result = yield Statement(
        f"select a.consumer, c.last_ulid from (select distinct consumer from {claims}) a "
        f"left join {claims} c on c.consumer = a.consumer and c.shard_id = ?",
        (shard_id,),
    )
    cursors: Sequence[tuple[str, bytes]] = [
        (consumer, START if last is None else bytes(last)) for consumer, last in result.rows
    ]
    return min(cursors, key=lambda cursor: cursor[1]) if cursors else (None, START)


def _next(ulid: bytes) -> bytes:
    return (int.from_bytes(ulid, "big") + 1).to_bytes(len(ulid), "big")


def _name(dialect: Dialect, kind: str, table: str) -> str:
    return f"changefeed.{dialect.quoted(f'{kind}:{table}')}"
