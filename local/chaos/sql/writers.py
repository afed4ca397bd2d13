"""Writers to an SQL outbox, and what befalls their commits: kills, rollbacks, long transactions, wrong clocks."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from local.chaos.history import BEHIND, Histories
from local.chaos.schedule import Fault
from local.chaos.streams import TABLE, Layout, table_of
from local.chaos.workload import Commit
from outbox_relay.changefeed import shard_of

LONG_TRANSACTION = "long-transaction"
WRITER_KILLED = "writer-killed-within-a-transaction"
ROLLED_BACK = "rolled-back"
TIME_HINT_WRONG = "time-hint-wrong"
COMMIT_UNCERTAIN = "commit-uncertain"
HOSTILE_ROW = "hostile-row"

# The certain effect of an order to a writer.
_EDGES = {
    "long-transaction": LONG_TRANSACTION,
    "kill-writer": WRITER_KILLED,
    "roll-back": ROLLED_BACK,
    "wrong-hint": TIME_HINT_WRONG,
    "hostile-row": HOSTILE_ROW,
}

_EVENT = f"""
insert into {TABLE} (id, partition_key, action, data, sequence, type)
values (%(id)s, %(partitionKey)s, %(action)s, %(data)s, %(sequence)s, %(type)s)
"""
_PLACE = f"""
insert into changefeed."outbox:{TABLE}" (shard_id, time_hint, id)
values (%(shard_id)s, coalesce(%(time_hint)s, clock_timestamp()), %(id)s)
"""
_RETRY_PAUSE_S = 0.1

# The member of a document that is the text of its data, if that is no value of Python's.
_TEXT = "text"
# More than Python's parsers take, and more than a worker of the campaign holds at a time.
_LEVELS = 5000
_HUGE = 3 * 1024**2


class _RolledBackError(Exception):
    """The transaction was rolled back on purpose."""


class Writers:
    """Commits to the event table and the outbox.

    A key belongs to one writer, which repeats a commit until it is known to be committed, so a key's commits need
    no lock.

    Attributes:
        met: Number of times each edge case of the writers was met.
    """

    def __init__(self, url: str, shards: int, layout: Layout, *, large: bool) -> None:
        """`large` says whether large events are published, and not poison."""
        self._url = url
        self._shards = shards
        self._layout = layout
        self._large = large
        self._orders: deque[Fault] = deque()
        self.met: Counter[str] = Counter()

    def order(self, fault: Fault) -> None:
        """Inject a fault into the next `count` commits; `count` is an option of the fault, 1 by default."""
        self._orders.extend([fault] * fault.options.get("count", 1))

    async def write(self, commits: Iterator[Commit], history: Histories, *, pause_s: float) -> None:
        """Commit one writer's commits in order, repeating each until it is known to be committed."""
        writer = _Writer(self._url, self._shards, self._layout, self.met)
        try:
            for commit in commits:
                await asyncio.sleep(pause_s * len(commit.events))
                order = self._orders.popleft() if self._orders else None
                if order is not None and order.kind == "hostile-row":
                    _make_hostile(commit, order.options["what"], large=self._large)
                await writer.until_committed(commit, order)
                history.wrote(commit.key, commit.events)
                for document, reasons in commit.poison:
                    history.wrote_poison(document, reasons)
        finally:
            await writer.close()


class _Writer:
    """One writer with its connection, which is opened again whenever it was lost."""

    def __init__(self, url: str, shards: int, layout: Layout, met: Counter[str]) -> None:
        self._url = url
        self._shards = shards
        self._layout = layout
        self._met = met
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def until_committed(self, commit: Commit, order: Fault | None) -> None:
        """Try until the commit is known to be committed; `order` applies to the first attempt."""
        if order is not None and order.kind in _EDGES:
            self._met[_EDGES[order.kind]] += 1
        while True:
            try:
                await self._attempt(commit, order)
            except psycopg.errors.UniqueViolation:
                # An attempt whose answer was lost. While that one is undecided, the insert of the same id waits.
                self._met[COMMIT_UNCERTAIN] += 1
                return
            except _RolledBackError:
                pass
            except psycopg.OperationalError:
                await self.close()
                await asyncio.sleep(_RETRY_PAUSE_S)
            else:
                return
            order = None

    async def _attempt(self, commit: Commit, order: Fault | None) -> None:
        kind = None if order is None else order.kind
        connection = await self._connected()
        async with connection.transaction():
            await self._insert(connection, commit, None if order is None else _hint(order))
            if kind == "long-transaction" and order is not None:
                await asyncio.sleep(order.options["for_s"])
            elif kind == "kill-writer":
                _cut(connection)
            elif kind == "roll-back":
                raise _RolledBackError
        if kind == "lose-answer":
            # The commit has arrived; its answer has not.
            raise psycopg.OperationalError("the connection was lost")

    async def _insert(
        self, connection: psycopg.AsyncConnection[Any], commit: Commit, hint: datetime | None
    ) -> None:
        shard_id = shard_of(commit.key, self._shards)
        places = [{"shard_id": shard_id, "time_hint": hint, "id": each["id"]} for each in commit.documents]
        table = table_of(self._layout.outbox_of(commit.key))
        async with connection.cursor() as cursor:
            await cursor.executemany(_into(table, _EVENT), [_row(document) for document in commit.documents])
            await cursor.executemany(_into(table, _PLACE), places)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None:
            self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, application_name="writer"
            )
        return self._connection

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _into(table: str, statement: str) -> bytes:
    return statement.replace(TABLE, table).encode()


def _make_hostile(commit: Commit, what: str, *, large: bool) -> None:
    """Give the first event half of a surrogate pair if it may have one, or put no event before it.

    If large events are published, the first event becomes a huge one.
    """
    first = commit.events[0]
    if what == "huge" and large:
        first["data"]["text"] = "x" * _HUGE
        return
    if what == "surrogate-data":
        first["data"]["half of a pair"] = "\ud800"
        return
    text, reason = {
        "surrogate-property": ('{"action": "\\ud800"}', "property-not-unicode"),
        "deep": (f'{{"action": "Deep", "deep": {"[" * _LEVELS}{"]" * _LEVELS}}}', "data-not-object"),
        "huge": (f'{{"action": "Huge", "text": "{"x" * _HUGE}"}}', "message-too-large"),
    }[what]
    without = {"data": None, "sequence": None, BEHIND: first["sequence"]}
    hostile = {**first, "id": f"hostile-{first['id']}", **without, _TEXT: text}
    commit.documents.insert(commit.documents.index(first), hostile)
    commit.poison.append((hostile, frozenset({reason})))


def _hint(order: Fault) -> datetime | None:
    """Return the time that the writer's clock gives, if it is wrong."""
    off_s = order.options.get("off_s")
    return None if off_s is None else datetime.now(UTC) + timedelta(seconds=off_s)


def _cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """End a connection as if its process was killed: the server sees only the end of the stream."""
    with socket.socket(fileno=connection.fileno()) as cut:
        cut.shutdown(socket.SHUT_RDWR)
        cut.detach()


def _row(document: dict[str, Any]) -> dict[str, Any]:
    data = document["data"]
    # The column must not be null; if the data have an action, that one counts.
    action = data.get("action") if isinstance(data, dict) else None
    return {
        "id": document["id"],
        "partitionKey": document["partitionKey"],
        "action": action or "",
        "data": document.get(_TEXT) or json.dumps(data),
        "sequence": document.get("sequence"),
        "type": document["type"],
    }
