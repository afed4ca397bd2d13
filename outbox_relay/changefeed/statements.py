"""Operations written once for sync and async sessions, and for each database.

An operation is a generator: it yields statements, is sent their results, or thrown their errors, and returns its
own result. `run` carries it out on a sync session, `run_async` on an async one.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from outbox_relay.changefeed.errors import ChangefeedError, SetupError

ResultT = TypeVar("ResultT")
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One round trip.

    Attributes:
        sql: The text, with a `?` for each parameter. A literal `?` cannot be written.
        parameters: Their values.
        unlimited: Whether it may take longer than the session's statement timeout.
        prepared: Whether the server keeps it, if it can. Its result has columns that never change.
        administers: Whether it sets up or repairs what is installed, so that it is a part of a script of that.
    """

    sql: str
    parameters: Sequence[Any] = ()
    unlimited: bool = False
    prepared: bool = False
    administers: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement.

    Attributes:
        columns: The names of the columns; empty if it returns no rows.
        rows: The rows.
        changed: Number of rows changed, if it changes any.
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
        key: The primary key, if the row does not exist; else empty.
    """

    ulid: bytes
    row: Mapping[str, Any] | None
    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """Which shards and times the rows of an event table get, and in which order.

    Attributes:
        order_by: Columns of the event table; the primary key decides between equal rows.
        time_column: The column with the times for the ULIDs (UTC without a time zone); None for the present.
        shard_id: The shard of all rows, if `shard_column` is None.
        shard_column: The column whose text gives each row its shard, as `writing.shard_of` does.
        shards: Number of shards, with `shard_column`.
    """

    order_by: Sequence[str]
    time_column: str | None = None
    shard_id: int = 0
    shard_column: str | None = None
    shards: int = 1


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        version: Its number, which the database records. The first is that of 0.1.0.
        name: The name of its file.
        text: The SQL.
    """

    version: int
    name: str
    text: str


def unapplied(migrations: Sequence[Migration], version: int) -> Sequence[Migration]:
    """Return the migrations after the schema's version, 0 if there is none.

    Raises SetupError if a later library has installed it, or one before the first release.
    """
    first, newest = migrations[0].version, migrations[-1].version
    if version > newest:
        raise SetupError(
            f"the schema changefeed has version {version}, and this library knows {newest}: "
            "install the version of the library that the schema was installed with, or a later one"
        )
    if 0 < version < first:
        raise SetupError(
            f"the schema changefeed has version {version}, of a development version before 0.1.0, and this "
            f"library upgrades from {first} on: upgrade it with app-v0.1.0 first"
        )
    return [migration for migration in migrations if migration.version > version]


class Dialect(Protocol):
    """Operations on a feed, in one database's SQL. `table` is the table's name as it was given to setup_feed."""

    name: str
    """Of its folder of migrations."""

    now: str
    """The expression for the present time, comparable with the times in the tables."""

    def datable(self, column: str, /) -> str:
        """Return the expression for a column of times, NULL where Python has no such time, as for infinity."""

    def read(
        self, table: str, shard_id: int, cursor: bytes, page_size: int, max_bytes: int | None, unlimited: bool, /
    ) -> Operation[list[Entry]]:
        """Return the page behind the cursor, in order: one round trip, with a limit of time unless `unlimited`."""

    def has_news(self, table: str, shard_id: int, cursor: bytes, /) -> Operation[bool]:
        """Return True if `read` may find something. Takes no lock."""

    def channel(self, table: str, /) -> Operation[str | None]:
        """Return the channel on which commits notify readers, or None.

        Raises SetupError if there is no such feed.
        """

    def install(self, migrations: Sequence[Migration], /) -> Operation[list[str]]:
        """Apply what is missing, each migration as a whole; returns the names of what was applied."""

    def version(self) -> Operation[int]:
        """Return the version of the installed schema; 0 if there is none."""

    def script(self, migrations: Sequence[Migration], further: Sequence[str], /) -> str:
        """Return the text that applies migrations, then runs further statements, as a program of its own."""

    def literal(self, value: str | bool | None, /) -> str:
        """Return a value as it is written in a statement."""

    def setup_feed(self, table: str, notify: bool, roles: bool, keep: str | None, /) -> Operation[None]:
        """Call changefeed.setup_feed."""

    def damage(self, table: str, /) -> Operation[list[str]]:
        """Return the names of the functions and rights that an existing table's feed lacks; empty if it is whole.

        A migration tool that drops or renames the event table, and creates it again, takes them with it.
        """

    def repair(self, table: str, /) -> Operation[None]:
        """Make what `damage` names again; what waits stays. Raises SetupError if the primary key has changed."""

    def set_keep(self, table: str, keep: str, /) -> Operation[None]:
        """Set how long positions are kept. Raises ArgumentError."""

    def retain(self, table: str, /) -> Operation[int]:
        """Delete what the feed's policy allows, a bounded number of rows; returns how many."""

    def prune_shard(
        self, table: str, shard_id: int, before: bytes, rows: int, /
    ) -> Operation[tuple[int, str | None]]:
        """Delete up to `rows` positions before `before` that all consumers have read.

        Returns how many, and the consumer that has not read all of the older ones.
        """

    def drop_feed(self, table: str, /) -> Operation[None]:
        """Call changefeed.drop_feed."""

    def begin_backfill(self, table: str, plan: BackfillPlan, anyway: bool, /) -> Operation[int | None]:
        """List the rows that are not on the feed, in one snapshot and in order, in a table of their own.

        Returns how many; None if a backfill was begun and is not finished. Raises ArgumentError if a shard
        has been read or written to, unless `anyway`.
        """

    def continue_backfill(self, table: str, rows: int, /) -> Operation[int | None]:
        """Move that many listed rows to the outbox, in one transaction, one process at a time.

        Returns how many there were. If there are none left, removes the list; None if there is no list.
        """

    def size(self, table: str, /) -> Operation[tuple[int, int]]:
        """Return the rows of the feed, as the server estimates them, and its bytes with the index."""

    def ulid(self, ulid: bytes, /) -> Any:
        """Return a ULID as a parameter."""

    def quoted(self, name: str, /) -> str:
        """Return a quoted identifier."""


class Session(Protocol):
    """A connection, in a mode where each statement is its own transaction."""

    @property
    def dialect(self) -> Dialect:
        """The statements in the SQL of its database."""

    def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""

    def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel, if the database has any."""

    def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of that payload if one is given.

        Returns False when there was none in that time, or there cannot be any.
        """

    def close(self) -> None:
        """Close the connection."""


class AsyncSession(Protocol):
    """A session for asyncio, with the methods of `Session` as coroutine functions."""

    @property
    def dialect(self) -> Dialect:
        """The statements in the SQL of its database."""

    async def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""

    async def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel, if the database has any."""

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of that payload if one is given.

        See `Session.notified` for the arguments and errors.
        """

    async def close(self) -> None:
        """Close the connection."""


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
