"""Counts the statements that a session is given: each is a round trip to the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from outbox_relay.changefeed.statements import AsyncSession, Dialect, Result, Statement

Connect = Callable[[], Awaitable[AsyncSession]]


class CountingSession:
    """A session that records the text of each statement before it passes it on.

    Attributes:
        statements: All texts, in order.
    """

    def __init__(self, session: AsyncSession, statements: list[str]) -> None:
        self._session = session
        self.statements = statements

    @property
    def dialect(self) -> Dialect:
        return self._session.dialect

    async def execute(self, statement: Statement, /) -> Result:
        self.statements.append(statement.sql)
        return await self._session.execute(statement)

    async def listen(self, channel: str, /) -> None:
        self.statements.append(f"listen {channel}")
        await self._session.listen(channel)

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for what the database sends, without a statement."""
        return await self._session.notified(timeout_s, payload)

    async def close(self) -> None:
        await self._session.close()


class CountedSessions:
    """Opens sessions, and keeps what each of them was given.

    Attributes:
        opened: The statements of each session, in the order in which they were opened.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.opened: list[list[str]] = []

    async def connect(self) -> AsyncSession:
        """Open one more."""
        statements: list[str] = []
        session = await self._connect()
        self.opened.append(statements)
        return cast(AsyncSession, CountingSession(session, statements))

    @property
    def total(self) -> int:
        """Number of statements executed by all sessions so far."""
        return sum(len(statements) for statements in self.opened)
