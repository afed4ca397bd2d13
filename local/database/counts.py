"""Counts of an SQL outbox."""

from __future__ import annotations

from typing import Any

import psycopg

from local.stack.counts import Counted

_TIMEOUT_S = 5

_COUNTS = """
with waiting as (
    select id from changefeed."outbox:outbox.domain_event"
    union all
    select f.id from changefeed."feed:outbox.domain_event" f
    join changefeed."claim:outbox.domain_event" c using (shard_id) where f.ulid > c.last_ulid
)
select (select count(*) from outbox.domain_event),
       (select count(*) from relay.item where type = 'quarantinedEvent'),
       exists (select from changefeed."claim:outbox.domain_event"),
       (select extract(epoch from clock_timestamp() - min(created_at))::float
        from outbox.domain_event join waiting using (id))
"""


class SqlCounts:
    """See `counts.Counts`. A worker does not say how many of its attempts have failed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def take(self) -> Counted:
        """Count once, in one query. Raises OSError if the database does not answer."""
        try:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=_TIMEOUT_S
                )
            row = await (await self._connection.execute(_COUNTS)).fetchone()
        except psycopg.Error as error:
            await self.close()
            raise OSError(f"the database does not answer: {type(error).__name__}") from error
        assert row is not None
        documents, quarantined, claimed, lag_s = row
        return Counted(documents, quarantined, None, max(0.0, lag_s or 0.0) if claimed else None)

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
