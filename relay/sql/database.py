"""The database of an SQL outbox: one session that is shared, and more where a reader needs its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from azure.core.exceptions import AzureError

from changefeed import AsyncConsumer, ChangefeedError, DatabaseError
from changefeed.statements import AsyncSession
from relay.errors import FeedError, first_line
from relay.settings import SqlFeed
from relay.sql.connection import connect

CONSUMER = "relay"
"""The name under which the relay claims shards and stores cursors."""


CALL_TIMEOUT_S = 10.0
"""Seconds after which a use of the shared session is cut off, connecting and waiting for it included.

PostgreSQL's driver may take another 10 s to have the server cancel the statement.
"""

# Seconds that closing a session may take.
_CLOSE_TIMEOUT_S = 5.0


class Database:
    """One for a process. Nothing is connected until it is used."""

    def __init__(self, settings: SqlFeed, *, call_timeout_s: float | None = CALL_TIMEOUT_S) -> None:
        """`call_timeout_s`: seconds after which a use of the shared session is cut off; None for never."""
        self._settings = settings
        self._call_timeout_s = call_timeout_s
        self._closing: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._session: AsyncSession | None = None

    async def connect(self) -> AsyncSession:
        """A session of its own. Raises ChangefeedError, AzureError or OSError."""
        return await connect(self._settings)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """The shared session, for one user at a time; it is opened again where it was lost or cut off.

        Raises ChangefeedError, AzureError or OSError; TimeoutError, which is one, where the time is over.
        """
        limit = asyncio.timeout(self._call_timeout_s)
        try:
            async with limit, self._turn:
                if self._session is None:
                    self._session = await self.connect()
                try:
                    yield self._session
                except DatabaseError as error:
                    if error.lost:
                        await self._close()
                    raise
                except asyncio.CancelledError:
                    # It may be within a statement or a transaction.
                    self._close_later()
                    raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"The database did not answer within {self._call_timeout_s:g} s.") from error

    async def cursor(self, shard_id: int) -> bytes:
        """How far a shard was published, as stored. Raises FeedError."""
        try:
            async with self.session() as session:
                (claim,) = await AsyncConsumer(session, self._settings.feed, CONSUMER).claims([shard_id])
        except (ChangefeedError, AzureError, OSError) as error:
            raise FeedError(
                f"old events must be compared with the stored cursor of shard {shard_id}, which could not be "
                f"read: {first_line(error)}"
            ) from error
        return claim.cursor

    async def close(self) -> None:
        """Close the shared session, if there is one."""
        async with self._turn:
            await self._close()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_TIMEOUT_S)

    def _close_later(self) -> None:
        """Close the shared session in the background: without answers it may take its time."""
        session, self._session = self._session, None
        if session is not None:
            task = asyncio.create_task(_end(session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _end(session: AsyncSession) -> None:
    # What fails in closing has no consequence.
    with suppress(ChangefeedError):
        await session.close()
