"""The installation as a script, for the owner of a database who runs no commands against it.

What has to be read is read; what would change the database is recorded instead of run. A script changes nothing
until it is run, so it shows what a command would do at the moment that it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import (
    AsyncSession,
    Dialect,
    Migration,
    Operation,
    Result,
    Session,
    Statement,
    unapplied,
)

NOTHING_TO_DO = "-- Everything is there already."
"""The script of an installation that lacks nothing."""


@dataclass(slots=True)
class Recorder:
    """Session that runs what reads, and records the statements that would change the database.

    Attributes:
        session: The session that reads.
        recorded: The statements in full, in order.
    """

    session: Session
    recorded: list[str] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        """The statements in the SQL of its database."""
        return self.session.dialect

    def execute(self, statement: Statement, /) -> Result:
        """Run a statement that reads, or record it. Raises ChangefeedError."""
        if not statement.administers:
            return self.session.execute(statement)
        self.recorded.append(in_full(self.dialect, statement))
        return Result((), (), 0)

    def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel, if the database has any."""
        self.session.listen(channel)

    def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of that payload if one is given."""
        return self.session.notified(timeout_s, payload)

    def close(self) -> None:
        """Close the connection."""
        self.session.close()


@dataclass(slots=True)
class AsyncRecorder:
    """Async session that runs what reads, and records the statements that would change the database.

    Attributes:
        session: The session that reads.
        recorded: The statements in full, in order.
    """

    session: AsyncSession
    recorded: list[str] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        """The statements in the SQL of its database."""
        return self.session.dialect

    async def execute(self, statement: Statement, /) -> Result:
        """Run a statement that reads, or record it. Raises ChangefeedError."""
        if not statement.administers:
            return await self.session.execute(statement)
        self.recorded.append(in_full(self.dialect, statement))
        return Result((), (), 0)

    async def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel, if the database has any."""
        await self.session.listen(channel)

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of that payload if one is given."""
        return await self.session.notified(timeout_s, payload)

    async def close(self) -> None:
        """Close the connection."""
        await self.session.close()


def in_full(dialect: Dialect, statement: Statement) -> str:
    """Return the text of a statement with its parameters as literals."""
    first, *others = statement.sql.split("?")
    values = map(dialect.literal, statement.parameters)
    return first + "".join(f"{value}{text}" for value, text in zip(values, others, strict=True))


def missing_migrations(dialect: Dialect) -> Operation[tuple[int, Sequence[Migration]]]:
    """Return the version of the installed schema, 0 if there is none, and the migrations that it lacks.

    Raises SetupError if a later version of this library has installed it, or one before 0.1.0.
    """
    version = yield from dialect.version()
    return version, unapplied(migrations(dialect.name), version)
