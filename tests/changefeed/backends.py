"""The contract suite's interface of a database. Each kind of database has an implementation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from outbox_relay.changefeed import AsyncSession, Session
from tests.changefeed.history import Event

TABLE = "app.event"
"""The table whose feed is tested: aggregate, version (its primary key) and data, JSON."""


class Writer(Protocol):
    """A service's connection, with explicit transactions."""

    @property
    def id(self) -> int:
        """Of its session on the server."""

    def begin(self) -> None:
        """Begin a transaction."""

    def append(
        self, shard: int, aggregate: str, write: int = 0, *, time_hint: datetime | str | None = None
    ) -> Event:
        """Lock the aggregate's row, count its version up, and insert the event into its table and the outbox.

        The event's data is {"write": write}.
        """

    def commit(self) -> None:
        """Commit."""

    def rollback(self) -> None:
        """Roll back."""

    def close(self) -> None:
        """Close the connection."""


class Backend(Protocol):
    """A fresh database with the schema `changefeed`, the tables of a service and the feed of `app.event`."""

    session_id_query: str
    """Gives the server's id of the session that asks."""

    @property
    def owner(self) -> Session:
        """A session of the owner, in which each statement is a transaction."""

    def session(self, **options: Any) -> Session:
        """A further session; it is closed at the end."""

    async def session_async(self, **options: Any) -> AsyncSession:
        """A further async session; the test closes it."""

    def writer(self) -> Writer:
        """A further writer; it is closed at the end."""

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of the owner's query, with a `?` for each value."""

    def id_of(self, session: Session) -> int:
        """The result of session_id_query in a session."""

    def kill(self, session_id: int) -> None:
        """End a session on the server, and wait until it has gone."""

    def blocked(self, session_id: int) -> bool:
        """Return True if a session waits for a lock."""

    def outbox_held(self) -> AbstractContextManager[None]:
        """Hold the lock of every row of the outbox: a reader can number them, and not finish."""

    def shard_held(self, shard: int) -> AbstractContextManager[None]:
        """Hold the lock of a shard, as a reader does that numbers it."""

    def set_last_position(self, shard: int, position: bytes) -> None:
        """Change the last position that was given in a shard."""

    def cache_sequence(self) -> None:
        """Let each session draw ten numbers of order_sequence at once."""

    def set_lock_timeout(self, milliseconds: int) -> None:
        """How long a read waits for the shard's lock."""

    def close(self) -> None:
        """Close all sessions."""
