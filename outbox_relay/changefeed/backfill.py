"""Backfill: puts the rows that an event table had before its feed was set up on that feed.

Do it before writers write to the outbox and readers read: events of one shard stay in the order in which they
were put on the feed. It begins by listing the rows that are not on the feed, in one snapshot, so no row is put
there twice, even while writers write; then it moves the list to the outbox in chunks. If it was interrupted,
it continues.
"""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.changefeed.errors import ArgumentError
from outbox_relay.changefeed.statements import (
    AsyncSession,
    BackfillPlan,
    Dialect,
    Operation,
    Session,
    run,
    run_async,
)

CHUNK = 1000

_Progress = Callable[[int], None]


def backfill(
    session: Session,
    table: str,
    plan: BackfillPlan,
    *,
    chunk: int = CHUNK,
    anyway: bool = False,
    progress: _Progress | None = None,
) -> int:
    """Put the rows of an event table that are not on its feed yet on it.

    Args:
        session: A session of the tables' owner.
        table: `schema.Table`, as it was given to setup_feed.
        plan: The order, the times and the shards. A backfill that was interrupted continues as it was begun.
        chunk: Number of rows to move in one transaction.
        anyway: Begin even if one of the shards has been read or written to; these rows then come after that.
        progress: Called after each chunk with the number of rows that this call has put on the feed.

    Returns:
        Number of rows that this call has put on the feed.

    Raises:
        ArgumentError: The table has no feed, or lacks a column of the plan; a shard has been read or written to.
        DatabaseError
    """
    return run(session, _backfill(session.dialect, table, plan, chunk, anyway, progress))


async def backfill_async(
    session: AsyncSession,
    table: str,
    plan: BackfillPlan,
    *,
    chunk: int = CHUNK,
    anyway: bool = False,
    progress: _Progress | None = None,
) -> int:
    """Put the rows of an event table that are not on its feed yet on it.

    See `backfill` for the arguments and errors.
    """
    return await run_async(session, _backfill(session.dialect, table, plan, chunk, anyway, progress))


def _backfill(
    dialect: Dialect, table: str, plan: BackfillPlan, chunk: int, anyway: bool, progress: _Progress | None
) -> Operation[int]:
    if chunk < 1:
        raise ArgumentError(f"chunk is {chunk}: move 1 row at least in one transaction")
    if plan.shard_column is not None and plan.shards < 1:
        raise ArgumentError(f"shards is {plan.shards}: there has to be one shard at least")
    yield from dialect.begin_backfill(table, plan, anyway)
    total = 0
    while moved := (yield from dialect.continue_backfill(table, chunk)):
        total += moved
        if progress is not None:
            progress(total)
    return total
