"""For writers: puts events on a feed, in the transaction that the service has open.

A writer needs nothing but two INSERTs in its own transaction, one into its table and one into the outbox. These
functions carry out the second one, on what the service uses already: a DB-API connection or cursor of psycopg,
psycopg2, mssql-python or pyodbc, or a connection or session of SQLAlchemy. They commit nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from outbox_relay.changefeed.errors import ArgumentError
from outbox_relay.changefeed.targets import Insert, execute, execute_async

Keys = Mapping[str, Any] | Sequence[Mapping[str, Any]]

_HASHED_BYTES = 8


def shard_of(key: str, shards: int) -> int:
    """Return the shard of a partition key, 0 to shards - 1; the same in every process and language.

    It is the first 8 bytes of the SHA-256 of the key's UTF-8, as a big-endian unsigned number, modulo `shards`.
    In PostgreSQL it is `changefeed.shard_of(key, shards)`. Another number of shards moves most keys to another
    shard.

    Raises:
        ArgumentError: `shards` is below 1.
    """
    if shards < 1:
        raise ArgumentError(f"shards is {shards}: there has to be one shard at least")
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:_HASHED_BYTES], "big") % shards


def append(target: Any, table: str, shard_id: int, keys: Keys, time_hint: datetime | None = None) -> None:
    """Put events on the feed of a table, in the order of `keys`, by one INSERT into the outbox.

    Args:
        target: The connection, cursor or SQLAlchemy session that has inserted the events and will commit.
        table: `schema.Table`, as it was given to setup_feed.
        shard_id: The shard of all these events.
        keys: The primary key of an event, column names to values, or those of several events.
        time_hint: When it happened, with a time zone; without, the server's time. The feed's order is not
            changed by it, and a time in the future counts as the present.

    Raises:
        ArgumentError: No transaction is open; the keys differ in their columns; there are too many of them for
            one statement; `time_hint` has no time zone; or `target` is none of the above.
    """
    insert = _outbox(table, shard_id, keys, time_hint)
    if insert.rows:
        execute(target, insert)


async def append_async(
    target: Any, table: str, shard_id: int, keys: Keys, time_hint: datetime | None = None
) -> None:
    """Put events on the feed of a table, in the order of `keys`, by one INSERT into the outbox.

    Takes psycopg's AsyncConnection, and SQLAlchemy's AsyncConnection and AsyncSession. See `append` for the
    arguments and errors.
    """
    insert = _outbox(table, shard_id, keys, time_hint)
    if insert.rows:
        await execute_async(target, insert)


def _outbox(table: str, shard_id: int, keys: Keys, time_hint: datetime | None) -> Insert:
    several = [keys] if isinstance(keys, Mapping) else list(keys)
    names = list(several[0]) if several else []
    if any(set(key) != set(names) for key in several):
        raise ArgumentError(f"all keys of one call name the same columns: the first one names {', '.join(names)}")
    columns: list[str] = ["shard_id"]
    values: list[Any] = [shard_id]
    if time_hint is not None:
        if time_hint.utcoffset() is None:
            raise ArgumentError("time_hint has no time zone. Pass datetime.now(UTC), for example.")
        columns.append("time_hint")
        try:
            values.append(time_hint.astimezone(UTC))
        except OverflowError:
            raise ArgumentError("time_hint is before the year 1 or after the year 9999 in UTC.") from None
    rows = [(*values, *(key[name] for name in names)) for key in several]
    return Insert(f"outbox:{table}", (*columns, *names), rows)
