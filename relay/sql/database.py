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
from relay.sql.bounded import BoundedSession
from relay.sql.connection import connect

CONSUMER = "relay"
"""The name under which the relay claims shards and stores cursors."""

# Maximum seconds of a statement on the shared session, for which every shard may wait, and of that wait.
_SHARED_S = 20.0
_TURN_S = 30.0


class Database:
    """One for a process. Nothing is connected until it is used."""

    def __init__(self, settings: SqlFeed) -> None:
        self._settings = settings
        self._turn = asyncio.Lock()
        self._session: BoundedSession | None = None

    async def connect(self) -> BoundedSession:
        """A session of its own. Raises ChangefeedError, AzureError or OSError."""
        return await connect(self._settings)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """The shared session, for one user at a time; it is opened again where it was lost.

        Raises ChangefeedError, AzureError or OSError.
        """
        await self._await_turn()
        try:
            if self._session is None or self._session.lost:
                self._session = BoundedSession(await self.connect(), _SHARED_S)
            yield self._session
        except DatabaseError as error:
            if error.lost:
                await self._close()
            raise
        finally:
            self._turn.release()

    async def _await_turn(self) -> None:
        """Wait for the users before. Raises DatabaseError where that takes too long."""
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turn.acquire()
        except TimeoutError as error:
            raise DatabaseError(f"other users have waited for the server for {_TURN_S:g} s") from error

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
