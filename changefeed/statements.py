"""Operations written once for sync and async sessions, and for each database.

An operation is a generator: it yields statements, is sent their results, or thrown their errors, and returns its
own result. `run` carries it out on a sync session, `run_async` on an async one.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from changefeed.errors import ChangefeedError

ResultT = TypeVar("ResultT")
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One round trip.

    Attributes:
        sql: The text, with a `?` for each parameter. A literal `?` cannot be written.
        parameters: Their values.
    """

    sql: str
    parameters: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave.

    Attributes:
        columns: The names of the columns; empty where it returns no rows.
        rows: The rows.
        changed: How many rows it changed, where it changes any.
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    changed: int


Operation = Generator[Statement, Result, ResultT]


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a feed.

    Attributes:
        ulid: Its position, 16 bytes.
        row: The columns of its row in the event table; None if that row does not exist.
        key: The primary key, where the row does not exist; else empty.
    """

    ulid: bytes
    row: Mapping[str, Any] | None
    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        version: Its number, from 1.
        name: The name of its file.
        text: The SQL.
    """

    version: int
    name: str
    text: str


class Dialect(Protocol):
    """Operations on a feed, in one database's SQL. `table` is the table's name as it was given to setup_feed."""

    name: str
    """Of its folder of migrations."""

    def read(self, table: str, shard_id: int, cursor: bytes, page_size: int, /) -> Operation[list[Entry]]:
        """The page behind the cursor, in order: one round trip."""

    def has_news(self, table: str, shard_id: int, cursor: bytes, /) -> Operation[bool]:
        """Whether `read` may find something; it takes no lock."""

    def channel(self, table: str, /) -> Operation[str | None]:
        """Where commits notify readers; None where they do not. Raises SetupError where there is no such feed."""

    def install(self, migrations: Sequence[Migration], /) -> Operation[list[str]]:
        """Apply what is missing, each migration as a whole; returns the names of what was applied."""

    def setup_feed(self, table: str, notify: bool, roles: bool, /) -> Operation[None]:
        """Call changefeed.setup_feed."""

    def drop_feed(self, table: str, /) -> Operation[None]:
        """Call changefeed.drop_feed."""

    def ulid(self, ulid: bytes, /) -> Any:
        """A ULID as a parameter."""

    def quoted(self, name: str, /) -> str:
        """A quoted identifier."""


class Session(Protocol):
    """A connection, in a mode where each statement is a transaction of its own."""

    @property
    def dialect(self) -> Dialect:
        """What it says in its database's own SQL."""

    def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""

    def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel, where the database has any."""

    def notified(self, timeout_s: float, /) -> bool:
        """Wait for a notification; returns False when there was none in that time, or there cannot be any."""

    def close(self) -> None:
        """Close the connection."""


class AsyncSession(Protocol):
    """As Session, for asyncio."""

    @property
    def dialect(self) -> Dialect: ...

    async def execute(self, statement: Statement, /) -> Result: ...

    async def listen(self, channel: str, /) -> None: ...

    async def notified(self, timeout_s: float, /) -> bool: ...

    async def close(self) -> None: ...


def run(session: Session, operation: Operation[ResultT]) -> ResultT:
    """Carry out an operation on a sync session."""
    try:
        statement = next(operation)
        while True:
            try:
                result = session.execute(statement)
            except ChangefeedError as error:
                statement = operation.throw(error)
            else:
                statement = operation.send(result)
    except StopIteration as done:
        value: ResultT = done.value
        return value


async def run_async(session: AsyncSession, operation: Operation[ResultT]) -> ResultT:
    """Carry out an operation on an async session."""
    try:
        statement = next(operation)
        while True:
            try:
                result = await session.execute(statement)
            except ChangefeedError as error:
                statement = operation.throw(error)
            else:
                statement = operation.send(result)
    except StopIteration as done:
        value: ResultT = done.value
        return value
