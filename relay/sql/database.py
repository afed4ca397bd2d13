"""The database of an SQL outbox: one session that is shared, and more where a reader needs its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.core.exceptions import AzureError

from changefeed import AsyncConsumer, ChangefeedError, DatabaseError
from changefeed.statements import AsyncSession
from relay.errors import FeedError, first_line
from relay.settings import SqlFeed
from relay.sql.connection import connect

CONSUMER = "relay"
"""The name under which the relay claims shards and stores cursors."""


class Database:
    """One for a process. Nothing is connected until it is used."""

    def __init__(self, settings: SqlFeed) -> None:
        self._settings = settings
        self._turn = asyncio.Lock()
        self._session: AsyncSession | None = None

    async def connect(self) -> AsyncSession:
        """A session of its own. Raises ChangefeedError, AzureError or OSError."""
        return await connect(self._settings)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """The shared session, for one user at a time; it is opened again where it was lost.

        Raises ChangefeedError, AzureError or OSError.
        """
        async with self._turn:
            if self._session is None:
                self._session = await self.connect()
            try:
                yield self._session
            except DatabaseError as error:
                if error.lost:
                    await self._close()
                raise

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

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
