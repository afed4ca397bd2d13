"""The database of an SQL outbox: one session that is shared, and more where a reader needs its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from azure.core.exceptions import AzureError

from changefeed import AsyncConsumer, ChangefeedError, DatabaseError
from changefeed.statements import AsyncSession
from relay.errors import FeedError, ServiceError, first_line
from relay.settings import SqlFeed
from relay.sql.bounded import BoundedSession
from relay.sql.connection import connect

CONSUMER = "relay"
"""The name under which the relay claims shards and stores cursors."""


CALL_TIMEOUT_S = 10.0
"""Maximum seconds of a statement on the shared session; waiting for it takes at most twice as long."""


class Database:
    """One for a process. Nothing is connected until it is used."""

    def __init__(self, settings: SqlFeed, *, call_timeout_s: float | None = CALL_TIMEOUT_S) -> None:
        """`call_timeout_s`: maximum seconds of a statement on the shared session; None for no limit."""
        self._settings = settings
        self._call_timeout_s = math.inf if call_timeout_s is None else call_timeout_s
        self._turn = asyncio.Lock()
        self._session: BoundedSession | None = None

    async def connect(self) -> BoundedSession:
        """A session of its own. Raises ChangefeedError, AzureError or OSError."""
        return await connect(self._settings)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """The shared session, for one user at a time; it is opened again where it was lost or cut off.

        Raises ChangefeedError, AzureError or OSError.
        """
        await self._await_turn()
        try:
            if self._session is None or self._session.lost:
                self._session = BoundedSession(await self.connect(), self._call_timeout_s)
            yield self._session
        except DatabaseError as error:
            if error.lost:
                await self._close()
            raise
        finally:
            self._turn.release()

    async def _await_turn(self) -> None:
        """Wait for the users before. Raises DatabaseError where that takes too long."""
        limit_s = 2 * self._call_timeout_s
        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                await self._turn.acquire()
        except TimeoutError as error:
            raise DatabaseError(f"other users have waited for the server for {limit_s:g} s") from error

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


@contextmanager
def explaining(feed: SqlFeed, grants: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Raise errors of the SQL outbox as a ServiceError that names what to check.

    Args:
        feed: The outbox.
        grants: The statements that give a role what it needs, where the database refuses.
    """
    try:
        yield
    except (ChangefeedError, AzureError, OSError) as error:
        refused = isinstance(error, DatabaseError) and not error.lost
        needed = f". The reader's role needs: {statements}" if refused and (statements := grants()) else ""
        raise ServiceError(
            f"the SQL outbox {feed.feed} cannot be read or written: {first_line(error)} Check SQL, SQL_FEED, and "
            f"the rights of this login: python -m relay check{needed}"
        ) from error
