"""A store in an SQL database that gives each block of `once` a connection of its own."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Generic, TypeVar

from outbox_relay.inbox.errors import DeadLetter, OutsideBlock
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.sequences import Arrival
from outbox_relay.inbox.stores.port import ArrivalIn, Blocks, ConnectionT, Gap, Identity, entity_of
from outbox_relay.inbox.stores.sql.dialects import Dialect, Operation, Result, Statement, run_async
from outbox_relay.inbox.stores.sql.parking import SqlParking
from outbox_relay.inbox.stores.sql.recording import ROWS, Recording
from outbox_relay.inbox.stores.sql.schema import check, install

ResultT = TypeVar("ResultT")


class SqlStore(SqlParking, Generic[ConnectionT]):
    """A store whose blocks are transactions. Blocks of different messages run concurrently.

    A delivery of a message waits for a block that handles the same message, in any process, and an event that has
    a number for a block that handles another event of its entity.

    The tables are created, or migrated, when they are needed first.
    """

    def __init__(self, dialect: Dialect, consumer: str) -> None:
        self._recording = Recording(dialect, consumer)
        self._blocks = Blocks()
        self._preparing = asyncio.Lock()
        self._is_prepared = False

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[ArrivalIn[ConnectionT]]:
        """See `Store.once`.

        The block is a transaction: what is written through `arrival.connection` is committed with the message, or
        not at all.

        Raises:
            OutsideBlock: The handler has ended the transaction itself, by whatever statement, or a statement in it
                has failed, and the handler went on. Nothing is committed since.
        """
        with self._blocks.enter() as block:
            await self.prepare()
            async with self._transaction() as connection:
                block.connection = connection
                arrival = await self.record(connection, message, entity=entity)
                # It has written. In SQL Server, a transaction begins with the first statement about a table.
                mark = await run_async(partial(self._execute, connection), self._recording.dialect.mark())
                yield ArrivalIn.of(arrival, connection)
                if arrival.first:
                    await self._check(connection, Identity.of(message), mark)

    async def record(self, connection: ConnectionT, message: Message, *, entity: str | None = None) -> Arrival:
        """Record a message in a transaction of the caller, who commits it with the effect.

        For a handler with its own transaction. The tables must exist: call `prepare` when the service starts.
        If anything raises, roll the transaction back.

        Args:
            connection: In a transaction.
            message: The message.
            entity: As for `once`.

        Raises:
            DeadLetter: The message cannot be recorded, as for `once`.
        """
        operation = self._recording.record(Identity.of(message), entity_of(message, entity), message.sequence)
        try:
            return await run_async(partial(self._execute, connection), operation)
        except self._unstorable as error:
            # Not the error's text: it may quote the value.
            raise DeadLetter("invalid-identity", "The database's encoding lacks a character of it.") from error

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`. Inside a block, it reads through the block's connection."""
        block = self._blocks.mine
        if block is not None and block.connection is not None:
            return await run_async(partial(self._execute, block.connection), self._recording.gaps())
        await self.prepare()
        return await self._run(self._recording.gaps(), writes=False)

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        forgotten = 0
        while True:
            some = await self.transact(self._recording.forget(older_than))
            forgotten += some
            if some < ROWS:
                return forgotten

    async def prepare(self) -> None:
        """Create or migrate the tables, if that was not done yet.

        The first block does it too. Call it in a deployment whose service may not create tables.

        Raises:
            ValueError: A later version of this library has made the tables.
        """
        if not self._is_prepared:
            async with self._preparing:
                if not self._is_prepared:
                    await self._run(install(self._recording.dialect))
                    self._is_prepared = True

    async def check(self) -> None:
        """Return if the tables are there in this version; nothing is created or migrated, now or later.

        Raises:
            WrongTables: They are not.
        """
        await self._run(check(self._recording.dialect), writes=False)
        self._is_prepared = True

    async def transact(self, operation: Operation[ResultT]) -> ResultT:
        """Run an operation in a transaction of its own.

        Raises:
            RuntimeError: The current task is inside a block, and would wait for a second connection.
        """
        self._blocks.check()
        await self.prepare()
        return await self._run(operation)

    async def _run(self, operation: Operation[ResultT], *, writes: bool = True) -> ResultT:
        async with self._transaction(writes=writes) as connection:
            return await run_async(partial(self._execute, connection), operation)

    _unstorable: tuple[type[Exception], ...] = (UnicodeEncodeError,)
    """The exceptions that the driver raises for a value that the database cannot hold."""

    _unmarked: tuple[type[Exception], ...] = ()
    """Exceptions of the driver if the mark of a transaction is not there."""

    @abstractmethod
    def _transaction(self, *, writes: bool = True) -> AbstractAsyncContextManager[ConnectionT]:
        """Return a connection in a transaction, which is committed unless the block raises."""

    @abstractmethod
    async def _execute(self, connection: ConnectionT, statement: Statement, /) -> Result: ...

    async def _check(self, connection: ConnectionT, event: Identity, mark: object) -> None:
        """Raise unless the transaction is still the one that has recorded the message."""
        try:
            checking = self._recording.is_unbroken(event, mark)
            is_unbroken = await run_async(partial(self._execute, connection), checking)
        except self._unmarked as error:
            raise OutsideBlock(ENDED) from error
        if not is_unbroken:
            raise OutsideBlock(ENDED)


ENDED = (
    "The transaction of this block of `once` was ended inside the block, or one of its statements failed and the "
    "handler went on. What followed is not committed. Let the error pass, or use a savepoint; leave commit and "
    "rollback to the block."
)
