"""Counts of SQL outboxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from local.stack.counts import Counted
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from relay.backends.sql.catalog import tables_of
from relay.config.settings import SqlFeed

_TIMEOUT_S = 5

_COUNTS = """
with waiting as (
    select {id} from {outbox}
    union all
    select f.{id} from {feed} f join {claim} c using (shard_id)
    where c.consumer = %(consumer)s and f.ulid > c.last_ulid
)
select (select count(*) from {events}),
       (select count(*) from {quarantine} where type = 'quarantinedEvent'),
       exists (select from {claim} where consumer = %(consumer)s),
       (select extract(epoch from clock_timestamp() - min(created_at))::float
        from {events} join waiting using ({id}))
"""


class SqlCounts:
    """See `counts.Counts`. A worker does not say how many of its attempts have failed."""

    def __init__(self, url: str, streams: Sequence[SqlFeed]) -> None:
        """`url` is the database's; `streams` read the outboxes in it, of which several may have the same one."""
        self._url = url
        self._streams = streams
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def take(self) -> Counted:
        """Count once, in one query for each stream. Raises OSError if the database does not answer."""
        documents: dict[str, int] = {}
        quarantined = 0
        lags_s: list[float] = []
        try:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=_TIMEOUT_S
                )
            for each in self._streams:
                row = await (await self._connection.execute(*_query(each))).fetchone()
                assert row is not None
                documents[each.feed], own, claimed, lag_s = row
                quarantined += own
                lags_s += [max(0.0, lag_s or 0.0)] if claimed else []
        except psycopg.Error as error:
            await self.close()
            raise OSError(f"the database does not answer: {type(error).__name__}") from error
        return Counted(sum(documents.values()), quarantined, None, max(lags_s, default=None))

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _query(stream: SqlFeed) -> tuple[str, dict[str, str]]:
    """Return the query for the counts of a stream, and its parameters."""
    dialect = PostgresDialect()
    tables = tables_of(dialect, stream)
    text = _COUNTS.format(
        id=dialect.quoted(stream.selection.fields.column_of("id")),
        outbox=tables.outbox,
        feed=tables.feed,
        claim=tables.claim,
        events=tables.events,
        quarantine=stream.quarantine_table,
    )
    return text, {"consumer": stream.consumer}
