"""The table relay.item as a store of items: in PostgreSQL, Azure SQL or SQL Server.

Each stream but the first has a table of its own, of the same shape (`SqlFeed.quarantine_table`).

JSON text can hold any string, as it can escape every character. A column cannot: PostgreSQL has no U+0000 in text,
no database has lone surrogates, and SQL Server takes `a` and `a` with a space behind it for equal. So:

- `\\`, U+0000 and each lone surrogate are written as `\\u` and four hexadecimal digits. Nothing else is changed,
  so no two texts become one.
- In ids, by which items are found, every space is written so too. The beginning of an id stays a beginning.
- Items are found by a digest of their partition key, which may be longer than an index takes.

A call on the shared session ends after `CALL_TIMEOUT_S`, however slow the line is. So no statement stores more
than `MAX_BODY` bytes: a larger record is refused, and then stored in parts, as for Cosmos DB.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from outbox_relay.changefeed import ChangefeedError, DatabaseError
from outbox_relay.changefeed.statements import AsyncSession, Row, Statement
from relay.backends.sql.database import Database
from relay.config.settings import QUARANTINE_TABLE
from relay.core import holds
from relay.core.errors import StoreError, first_line
from relay.core.holds import Holds
from relay.quarantine import items
from relay.quarantine.record import RECORD_TYPE

# The columns of a summary, and what `RecordSummary.of` calls them.
_SUMMARY = {
    "id": "id",
    "partition_key": "partitionKey",
    "reason": "reason",
    "detail": "detail",
    "quarantined_at": "quarantinedAt",
    "position": "position",
    "invocation_id": "invocationId",
    "document_id": "documentId",
    "document_parts": "documentParts",
    "lsn": "lsn",
    "place": "place",
    "ulid": "ulid",
}
_COLUMNS = ("key_digest", "etag", "type", "body", *_SUMMARY)

_ITEM = " where key_digest = ? and id = ?"
INSERT = f"insert into relay.item ({', '.join(_COLUMNS)}) values ({', '.join('?' * len(_COLUMNS))})"
READ = f"select body, touched_at, etag from relay.item{_ITEM}"
EXISTS = f"select 1 from relay.item{_ITEM}"
TOUCH = f"update relay.item set etag = ?, touched_at = ?{_ITEM}"
DELETE = f"delete from relay.item{_ITEM}"
DELETE_UNCHANGED = f"{DELETE} and etag = ?"

HOLDS = "select body, etag from relay.item where type in (?, ?)"
OF_TYPE = "select body, touched_at from relay.item where type = ?"
COUNT = "select count(*) from relay.item where type = ?"
SUMMARIES = f"select {', '.join(_SUMMARY)} from relay.item where type = ?"
WITH_REASON = " and reason = ?"
WITH_KEY = " and key_digest = ?"
SINCE = " and quarantined_at >= ?"
WITH_ID = " and id like ? escape '!'"
IN_ORDER = " order by quarantined_at, position, id"
AT_MOST = " offset 0 rows fetch next ? rows only"

BEGIN, COMMIT, ROLLBACK = "begin transaction", "commit", "rollback"

MAX_BODY = 2_000_000
"""Maximum length of an item as JSON, in bytes."""

_ESCAPED = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")
_WILDCARD = re.compile(r"([!%_\[])")


class SqlItems:
    """A store in the table relay.item; `quarantine.items.Items` says what each method does."""

    def __init__(self, database: Database) -> None:
        """Create the store; `database` is the connection to use, and is closed with the store."""
        self._database = database
        self._table = database.quarantine_table

    async def create(self, item: items.Item, /) -> None:
        async with self._database.session_for(self._table, StoreError) as session:
            try:
                await self._carry_out(session, item["partitionKey"], items.Create(item))
            except ChangefeedError as error:
                # Whatever the database calls it: if the item exists, that is why.
                if await self._exists(session, item["partitionKey"], item["id"]):
                    raise _exists_already(item) from error
                raise

    async def read(self, identifier: str, partition_key: str, /) -> items.Stored:
        rows = await self._rows(READ, *_place(identifier, partition_key))
        if not rows:
            raise _not_found(identifier)
        body, touched_at, etag = rows[0]
        return items.Stored(item_of(body, touched_at), etag)

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        async with self._database.session_for(self._table, StoreError) as session:
            await self._carry_out(session, partition_key, items.Delete(identifier, etag))

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        async with self._database.session_for(self._table, StoreError) as session:
            await self._carry_out(session, partition_key, items.Touch(identifier))

    async def batch(self, partition_key: str, operations: Sequence[items.Operation], /) -> None:
        done: list[items.Operation] = []
        async with self._database.session_for(self._table, StoreError) as session:
            try:
                async with _transaction(session):
                    for operation in operations:
                        if isinstance(operation, items.Create) and _creates(done, operation.item):
                            raise _exists_already(operation.item)
                        await self._carry_out(session, partition_key, operation)
                        done.append(operation)
            except (items.ItemExists, items.ItemNotFound, items.ItemChanged) as error:
                raise items.BatchFailed(len(done), error) from error
            except items.ItemTooLarge as error:
                raise items.BatchFailed(None, error) from error
            except ChangefeedError as error:
                refused = operations[len(done)] if len(done) < len(operations) else None
                if isinstance(refused, items.Create) and await self._exists(
                    session, partition_key, refused.item["id"]
                ):
                    raise items.BatchFailed(len(done), _exists_already(refused.item)) from error
                raise

    async def holds(self) -> Holds:
        rows = await self._rows(HOLDS, holds.PARKED_TYPE, holds.ORDER_TYPE)
        return holds.holds_from_items([{**json.loads(body), "_etag": etag} for body, etag in rows])

    async def count(self, chosen: items.Filter, /) -> int:
        conditions, values = _records(chosen)
        ((found,),) = await self._rows(COUNT + conditions, *values)
        return int(found)

    async def summaries(self, chosen: items.Filter, /, limit: int | None = None) -> list[items.RecordSummary]:
        conditions, values = _records(chosen)
        if limit is None:
            rows = await self._rows(SUMMARIES + conditions + IN_ORDER, *values)
        else:
            rows = await self._rows(SUMMARIES + conditions + IN_ORDER + AT_MOST, *values, limit)
        return list(map(_summary_of, rows))

    async def summaries_by_id(self, beginning: str, /) -> list[items.RecordSummary]:
        rows = await self._rows(SUMMARIES + WITH_ID, RECORD_TYPE, ids_beginning(beginning))
        return list(map(_summary_of, rows))

    async def of_type(
        self, item_type: str, /, partition_key: str | None = None, *, since: str | None = None
    ) -> list[items.Item]:
        sql, values = OF_TYPE, [item_type]
        if partition_key is not None:
            sql, values = sql + WITH_KEY, [*values, digest(partition_key)]
        if since is not None:
            sql, values = sql + SINCE, [*values, since]
        rows = await self._rows(sql, *values)
        return [item_of(body, touched_at) for body, touched_at in rows]

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, sql: str, *parameters: object) -> Sequence[Row]:
        async with self._database.session_for(self._table, StoreError) as session:
            return (await session.execute(self._statement(sql, parameters))).rows

    async def _carry_out(self, session: AsyncSession, partition_key: str, operation: items.Operation) -> None:
        """Carry out an operation. Raises ItemNotFound, ItemChanged, or the ChangefeedError of a refused Create."""
        if isinstance(operation, items.Create):
            await session.execute(self._statement(INSERT, values_of(operation.item)))
            return
        place = _place(operation.id, partition_key)
        etag = operation.etag if isinstance(operation, items.Delete) else None
        if etag is not None:
            statement = self._statement(DELETE_UNCHANGED, (*place, etag))
        elif isinstance(operation, items.Delete):
            statement = self._statement(DELETE, place)
        else:
            statement = self._statement(TOUCH, (_new_etag(), datetime.now(UTC).isoformat(), *place))
        if (await session.execute(statement)).changed == 0:
            if etag is not None and await self._exists(session, partition_key, operation.id):
                raise items.ItemChanged(f"the item {operation.id!r} has another ETag")
            raise _not_found(operation.id)

    async def _exists(self, session: AsyncSession, partition_key: str, identifier: str) -> bool:
        return bool((await session.execute(self._statement(EXISTS, _place(identifier, partition_key)))).rows)

    def _statement(self, sql: str, parameters: Sequence[object]) -> Statement:
        return Statement(in_table(sql, self._table), parameters)


def in_table(sql: str, table: str) -> str:
    """Return the statement for a table with another name.

    Its constraint and its index are named after it as well.
    """
    if table == QUARANTINE_TABLE:
        return sql
    name = table.partition(".")[2]
    named = sql.replace("pk_item", f"pk_{name}").replace("ix_item_type", f"ix_{name}_type")
    return named.replace(QUARANTINE_TABLE, table)


@asynccontextmanager
async def _transaction(session: AsyncSession) -> AsyncIterator[None]:
    await session.execute(Statement(BEGIN))
    try:
        yield
        await session.execute(Statement(COMMIT))
    except Exception as error:
        # A statement that was cancelled has ended its session, and the transaction with it.
        try:
            await session.execute(Statement(ROLLBACK))
        except ChangefeedError:
            # A session whose transaction may be open must not be used again.
            raise DatabaseError(first_line(error), lost=True) from error
        raise


def _creates(operations: Sequence[items.Operation], item: items.Item) -> bool:
    return any(isinstance(each, items.Create) and each.item["id"] == item["id"] for each in operations)


def _place(identifier: str, partition_key: str) -> tuple[str, str]:
    return digest(partition_key), encode_id(identifier)


def _exists_already(item: items.Item) -> items.ItemExists:
    return items.ItemExists(f"the item {item['id']!r} is there already")


def _not_found(identifier: str) -> items.ItemNotFound:
    return items.ItemNotFound(f"there is no item {identifier!r}")


def values_of(item: items.Item) -> list[Any]:
    """Return the parameters of INSERT. Raises ItemTooLarge."""
    # In ASCII: the database's encoding does not matter.
    body = json.dumps(dict(item))
    if len(body) > MAX_BODY:
        raise items.ItemTooLarge(f"the item {item['id']!r} has {len(body)} bytes, more than {MAX_BODY}")
    row: dict[str, Any] = {"id": encode_id(item["id"]), "partitionKey": encode(item["partitionKey"])}
    if "at" in item:  # what `since` compares; a record has its own column
        row["quarantinedAt"] = _encoded(item["at"])
    if item["type"] == RECORD_TYPE:
        document = item.get("document")
        own_id = document.get("id") if isinstance(document, dict) else None
        stored_id = own_id if isinstance(own_id, str) else None
        named = {"documentId": stored_id, **item, "place": item.get("order")}
        row = {name: _encoded(named.get(name)) for name in _SUMMARY.values()} | row
    return [digest(item["partitionKey"]), _new_etag(), item["type"], body, *map(row.get, _SUMMARY.values())]


def item_of(body: str, touched_at: str | None) -> items.Item:
    item: dict[str, Any] = json.loads(body)
    return item if touched_at is None else {**item, "touchedAt": touched_at}


def _summary_of(row: Row) -> items.RecordSummary:
    named = zip(_SUMMARY.values(), row, strict=True)
    return items.RecordSummary.of(
        {name: decode(value) if isinstance(value, str) else value for name, value in named if value is not None}
    )


def _records(chosen: items.Filter) -> tuple[str, list[object]]:
    """Return the conditions that follow COUNT or SUMMARIES, and the parameters of both."""
    conditions = {
        WITH_REASON: None if chosen.reason is None else encode(chosen.reason),
        WITH_KEY: None if chosen.partition_key is None else digest(chosen.partition_key),
        SINCE: chosen.since,
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    return "".join(given), [RECORD_TYPE, *given.values()]


def _new_etag() -> str:
    return uuid4().hex


def _encoded(value: Any) -> Any:
    return encode(value) if isinstance(value, str) else value


def encode(text: str) -> str:
    """Encode a text as a column holds it."""
    return _ESCAPED.sub(_escape, text)


def decode(text: str) -> str:
    """Decode the text of a column, or the id."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)


def encode_id(identifier: str) -> str:
    """Encode an id, or the beginning of one, as the column holds it."""
    return encode(identifier).replace(" ", "\\u0020")


def ids_beginning(beginning: str) -> str:
    """Return a pattern for `like … escape '!'` that matches the ids with this beginning."""
    return _WILDCARD.sub(r"!\1", encode_id(beginning)) + "%"


def digest(partition_key: str) -> str:
    """Return the digest by which items of a partition key are found: 64 hexadecimal digits."""
    return hashlib.sha256(partition_key.encode(errors="surrogatepass")).hexdigest()


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"
