"""Retention: deletes positions of a feed that no consumer needs any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from outbox_relay.changefeed.errors import ArgumentError
from outbox_relay.changefeed.statements import AsyncSession, Dialect, Operation, Session, Statement, run, run_async
from outbox_relay.changefeed.tables import Tables
from outbox_relay.changefeed.ulid import at

# From 5000 locks in a statement SQL Server may lock the whole table.
_ROWS = 900


@dataclass(frozen=True, slots=True)
class Pruned:
    """The rows deleted in one shard.

    Attributes:
        shard_id: The shard.
        rows: Number of rows deleted from the feed.
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
    `claim:schema.Table`. The event table stays as it is: delete from it what is not on the feed any more. A cursor
    before the deleted positions is refused from then on; START reads what is left.

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
    """Delete the rows of a feed whose ULID is of a time before `before`, a page at a time.

    See `prune` for the arguments and errors.
    """
    return await run_async(session, _prune(session.dialect, table, before))


def _prune(dialect: Dialect, table: str, before: datetime) -> Operation[list[Pruned]]:
    if before.utcoffset() is None:
        raise ArgumentError("the time before which to delete has no time zone")
    if before > datetime.now(UTC):
        raise ArgumentError("the time before which to delete is in the future")
    # Raises if there is no such feed.
    yield from dialect.channel(table)
    pruned = []
    for shard_id in (yield from _shards(Tables(dialect, table))):
        one = yield from _prune_shard(dialect, table, shard_id, at(before))
        pruned.append(one)
    return pruned


def _shards(tables: Tables) -> Operation[list[int]]:
    """Return the shards that were read or have positions: a feed may have been filled by hand."""
    state = yield Statement(f"select shard_id from {tables.state}")
    shards = {row[0] for row in state.rows}
    last: int | None = None
    while True:
        # One at a time, each by index, since there is no other way to skip the rest of a shard.
        behind = "" if last is None else f" where shard_id > {int(last)}"
        found = yield Statement(f"select min(shard_id) from {tables.feed}{behind}")
        last = found.rows[0][0]
        if last is None:
            return sorted(shards)
        shards.add(last)


def _prune_shard(dialect: Dialect, table: str, shard_id: int, before: bytes) -> Operation[Pruned]:
    rows = 0
    while True:
        deleted, held_by = yield from dialect.prune_shard(table, shard_id, before, _ROWS)
        rows += deleted
        if deleted < _ROWS:
            return Pruned(shard_id, rows, held_by)
