"""The table relay.item as a store of items: in PostgreSQL, Azure SQL or SQL Server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from azure.core.exceptions import AzureError

from changefeed import ChangefeedError, DatabaseError
from changefeed.statements import AsyncSession, Row, Statement
from relay import holds
from relay.errors import StoreError, first_line
from relay.holds import ORDER_TYPE, PARKED_TYPE, Holds
from relay.quarantine.items import (
    BatchFailed,
    Create,
    Delete,
    Filter,
    Item,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    Operation,
    RecordSummary,
    Stored,
)
from relay.quarantine.record import RECORD_TYPE
from relay.sql import item_table as table
from relay.sql.database import Database
from relay.sql.texts import digest, encode_id, ids_beginning


class SqlItems:
    """A store in the table relay.item; `quarantine.items.Items` says what of it is promised."""

    def __init__(self, database: Database) -> None:
        """`database` is the connection to use; it is closed with the store."""
        self._database = database

    async def create(self, item: Item, /) -> None:
        """Create an item. Raises ItemExists."""
        async with self._session() as session:
            try:
                await _insert(session, item)
            except ChangefeedError as error:
                # Whatever the database calls it: where the item is there, that is why.
                if await _exists(session, item["partitionKey"], item["id"]):
                    raise _exists_already(item) from error
                raise

    async def read(self, identifier: str, partition_key: str, /) -> Stored:
        """Read an item. Raises ItemNotFound."""
        rows = await self._rows(table.READ, *_place(identifier, partition_key))
        if not rows:
            raise _not_found(identifier)
        body, touched_at, etag = rows[0]
        return Stored(table.item_of(body, touched_at), etag)

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        """Delete an item, if its ETag is still this one where one is given. Raises ItemNotFound or ItemChanged."""
        async with self._session() as session:
            if etag is None:
                await _delete(session, partition_key, identifier)
                return
            place = _place(identifier, partition_key)
            done = await session.execute(Statement(table.DELETE_UNCHANGED, (*place, etag)))
            if done.changed == 0 and await _exists(session, partition_key, identifier):
                raise ItemChanged(f"the item {identifier!r} has another ETag")
            if done.changed == 0:
                raise _not_found(identifier)

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        """Set the member `touchedAt` to the current time. Raises ItemNotFound."""
        async with self._session() as session:
            await _touch(session, partition_key, identifier)

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        """Carry out all of the operations, or none, in one transaction. Raises BatchFailed."""
        done: list[Operation] = []
        async with self._session() as session:
            try:
                async with _transaction(session):
                    for operation in operations:
                        if isinstance(operation, Create) and _creates(done, operation.item):
                            raise _exists_already(operation.item)
                        await _carry_out(session, partition_key, operation)
                        done.append(operation)
            except (ItemExists, ItemNotFound) as error:
                raise BatchFailed(len(done), error) from error
            except ChangefeedError as error:
                for refused in operations[len(done) : len(done) + 1]:
                    if isinstance(refused, Create) and await _exists(session, partition_key, refused.item["id"]):
                        raise BatchFailed(len(done), _exists_already(refused.item)) from error
                raise

    async def holds(self) -> Holds:
        """Every parked key and order."""
        return holds.read([json.loads(body) for (body,) in await self._rows(table.HOLDS, PARKED_TYPE, ORDER_TYPE)])

    async def count(self, chosen: Filter, /) -> int:
        """How many records there are."""
        conditions, values = table.records(chosen)
        ((found,),) = await self._rows(table.COUNT + conditions, *values)
        return int(found)

    async def summaries(self, chosen: Filter, /, limit: int | None = None) -> list[RecordSummary]:
        """The oldest records first, at most `limit`."""
        conditions, values = table.records(chosen)
        if limit is None:
            rows = await self._rows(table.SUMMARIES + conditions + table.IN_ORDER, *values)
        else:
            rows = await self._rows(table.SUMMARIES + conditions + table.IN_ORDER + table.AT_MOST, *values, limit)
        return list(map(table.summary_of, rows))

    async def summaries_by_id(self, beginning: str, /) -> list[RecordSummary]:
        """The records whose ids begin so."""
        rows = await self._rows(table.SUMMARIES + table.WITH_ID, RECORD_TYPE, ids_beginning(beginning))
        return list(map(table.summary_of, rows))

    async def of_type(self, item_type: str, /, partition_key: str | None = None) -> list[Item]:
        """The items of a type; only those of `partition_key` if it is given."""
        if partition_key is None:
            rows = await self._rows(table.OF_TYPE, item_type)
        else:
            rows = await self._rows(table.OF_TYPE + table.WITH_KEY, item_type, digest(partition_key))
        return [table.item_of(body, touched_at) for body, touched_at in rows]

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._database.close()

    async def _rows(self, sql: str, *parameters: object) -> Sequence[Row]:
        async with self._session() as session:
            return (await session.execute(Statement(sql, parameters))).rows

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[AsyncSession]:
        """The database's session; its errors are raised as StoreErrors."""
        try:
            async with self._database.session() as session:
                yield session
        except (ChangefeedError, AzureError, OSError) as error:
            # Not the driver's own words, which may show a part of the connection string.
            raise StoreError(
                f"the table relay.item cannot be read or written: {first_line(error)} "
                "Check SQL, that `python -m relay install` has made the table, and the rights of this identity."
            ) from error


@asynccontextmanager
async def _transaction(session: AsyncSession) -> AsyncIterator[None]:
    await session.execute(Statement(table.BEGIN))
    try:
        yield
        await session.execute(Statement(table.COMMIT))
    except Exception as error:
        # A statement that was cancelled has ended its session, and the transaction with it.
        try:
            await session.execute(Statement(table.ROLLBACK))
        except ChangefeedError:
            # Nobody may go on with a session whose transaction may be open.
            raise DatabaseError(first_line(error), lost=True) from error
        raise


async def _carry_out(session: AsyncSession, partition_key: str, operation: Operation) -> None:
    if isinstance(operation, Create):
        await _insert(session, operation.item)
    elif isinstance(operation, Delete):
        await _delete(session, partition_key, operation.id)
    else:
        await _touch(session, partition_key, operation.id)


async def _insert(session: AsyncSession, item: Item) -> None:
    await session.execute(Statement(table.INSERT, table.values_of(item)))


async def _touch(session: AsyncSession, partition_key: str, identifier: str) -> None:
    changes = (table.new_etag(), datetime.now(UTC).isoformat())
    done = await session.execute(Statement(table.TOUCH, (*changes, *_place(identifier, partition_key))))
    if done.changed == 0:
        raise _not_found(identifier)


async def _delete(session: AsyncSession, partition_key: str, identifier: str) -> None:
    done = await session.execute(Statement(table.DELETE, _place(identifier, partition_key)))
    if done.changed == 0:
        raise _not_found(identifier)


async def _exists(session: AsyncSession, partition_key: str, identifier: str) -> bool:
    return bool((await session.execute(Statement(table.EXISTS, _place(identifier, partition_key)))).rows)


def _creates(operations: Sequence[Operation], item: Item) -> bool:
    return any(isinstance(each, Create) and each.item["id"] == item["id"] for each in operations)


def _place(identifier: str, partition_key: str) -> tuple[str, str]:
    return digest(partition_key), encode_id(identifier)


def _exists_already(item: Item) -> ItemExists:
    return ItemExists(f"the item {item['id']!r} is there already")


def _not_found(identifier: str) -> ItemNotFound:
    return ItemNotFound(f"there is no item {identifier!r}")
