"""A consumer that kills itself: `python -m tests.support.killed_consumer STORE PLACE BROKER POINT COUNT`.

It handles the messages of the queue, and appends the id of each to a list of its key, in the transaction of its
record. At the POINT of the COUNTth message that it handles first it ends with SIGKILL: `inside`, when the effect
is made and not committed, or `after`, when it is committed and the message is not completed. With the point
`never` it runs until it is stopped. It prints `again` for each message that it skips.

With the points `statement` and `mended` it parks keys, and first releases those that are parked. At `statement` it
cannot handle the second message of a key, and ends after the COUNTth statement of its store; at `mended` it can
handle every message, and runs until it is stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from outbox_relay import inbox
from tests.support.inbox import QUEUE, QUICK

CREATE = "create table if not exists handled (number {}, key text, id text)"
ADD = "insert into handled (key, id) values ({0}, {0})"
ALL = "select key, id from handled order by number"

STATEMENT, MENDED = "statement", "mended"

Effect = Callable[[Any, inbox.Message], Awaitable[None]]

_PARKING: dict[str, Any] = {"on_poison": "park", "attempts": 3, "released_s": 0.1, "claim_s": 3.0}


@asynccontextmanager
async def in_sqlite(place: str) -> AsyncIterator[tuple[inbox.Store, Effect]]:
    connection = inbox.SqliteConnection(place)
    connection.execute(CREATE.format("integer primary key"))

    async def effect(_: Any, message: inbox.Message) -> None:
        connection.execute(ADD.format("?"), (message.key, message.id))

    yield inbox.SqliteStore(connection), effect


@asynccontextmanager
async def in_postgres(place: str) -> AsyncIterator[tuple[inbox.Store, Effect]]:
    from psycopg_pool import AsyncConnectionPool

    async with AsyncConnectionPool(place, min_size=1, max_size=4) as pool:
        async with pool.connection() as connection:
            await connection.execute(CREATE.format("bigint generated always as identity"))

        async def effect(arrival: Any, message: inbox.Message) -> None:
            await arrival.connection.execute(ADD.format("%s"), (message.key, message.id))

        yield inbox.PostgresStore(pool.connection), effect


@asynccontextmanager
async def in_cosmos(place: str) -> AsyncIterator[tuple[inbox.Store, Effect]]:
    from azure.cosmos.aio import CosmosClient
    from azure.cosmos.exceptions import CosmosResourceNotFoundError

    async with CosmosClient.from_connection_string(place) as client:
        container = client.get_database_client("consumer").get_container_client("state")

        async def effect(arrival: Any, message: inbox.Message) -> None:
            batch: inbox.CosmosBatch = arrival.connection
            try:
                stored = await container.read_item("handled", message.key)
            except CosmosResourceNotFoundError:
                batch.create({"id": "handled", "partitionKey": message.key, "type": "list", "ids": [message.id]})
            else:
                batch.replace({**stored, "ids": [*stored["ids"], message.id]}, etag=stored["_etag"])

        yield inbox.CosmosStore(container), effect


OPEN = {"SQLite": in_sqlite, "PostgreSQL": in_postgres, "Cosmos DB": in_cosmos}


def die_after(store: Any, statements: int) -> None:
    """Have the process end after this many statements of the store."""
    left, execute = statements, store._execute

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def sync(*arguments: Any) -> Any:
        result = execute(*arguments)
        count()
        return result

    async def coroutine(*arguments: Any) -> Any:
        result = await execute(*arguments)
        count()
        return result

    store._execute = sync if isinstance(store, inbox.SqliteStore) else coroutine


async def release_all(store: Any) -> None:
    for key in await store.keys():
        await store.release(key.topic, key.key)


async def main(kind: str, place: str, broker: str, point: str, count: str) -> None:
    left = int(count)
    async with OPEN[kind](place) as (store, effect):

        def die_at(here: str) -> None:
            if point == here and left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        options: dict[str, Any] = {**QUICK, "sessions": 2}
        if point in (STATEMENT, MENDED):
            options |= {**_PARKING, "parking": store}
            if point == STATEMENT:
                die_after(store, left)
            await release_all(store)

        async def handle(message: inbox.Message) -> None:
            nonlocal left
            if point == STATEMENT and message.id.endswith("-2"):
                raise inbox.DeadLetter("poison")
            async with store.once(message) as arrival:
                if not arrival.first:
                    print("again", flush=True)
                    return
                await effect(arrival, message)
                left -= 1
                die_at("inside")
            die_at("after")

        async with inbox.connect(broker) as client:
            receiver = inbox.Receiver(client, handle, queue=QUEUE, **options)
            inbox.stop_on_signals(receiver)
            await receiver.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
