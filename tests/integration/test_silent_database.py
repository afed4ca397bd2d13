"""A database whose connections are lost without notice: each attempt ends, and the next one succeeds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from outbox_relay.changefeed.connections import connect_async
from outbox_relay.changefeed.statements import Statement
from relay.backends.sql import quarantine
from relay.backends.sql.database import Database
from relay.backends.sql.quarantine import SqlItems
from relay.core.errors import FeedError, StoreError
from relay.quarantine.items import Create, Item
from tests.support.network import Network
from tests.support.sql_outbox import sql_settings

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

LIMIT_S = 1.0

_WAITING = "select 1 from pg_locks where not granted"

# The limit, and what the driver takes to have the server cancel the statement.
SOON_S = LIMIT_S + 14


@pytest.fixture
async def network(outbox_database: str) -> AsyncIterator[tuple[Network, Database]]:
    """A network between the relay and its database."""
    url = urlsplit(outbox_database)
    (directory,) = parse_qs(url.query)["host"]
    async with Network(lambda: asyncio.open_unix_connection(f"{directory}/.s.PGSQL.5432")) as made:
        settings = sql_settings(f"postgresql://postgres@127.0.0.1:{made.port}{url.path}")
        database = Database(settings, call_timeout_s=LIMIT_S)
        yield made, database
        async with asyncio.timeout(SOON_S):
            await database.close()


def item(identifier: str) -> Item:
    return {"id": identifier, "partitionKey": "k", "type": "parkedKey"}


async def test_a_store_whose_connection_was_lost_fails_soon_and_is_connected_again(
    network: tuple[Network, Database],
) -> None:
    between, database = network
    items = SqlItems(database)
    await items.create(item("1"))
    assert between.lose() == 1
    began = time.monotonic()

    with pytest.raises(StoreError, match=r"did not answer within 1 s"):
        await items.batch("k", [Create(item("2")), Create(item("3"))])

    assert time.monotonic() - began < SOON_S
    await items.batch("k", [Create(item("2")), Create(item("3"))])
    assert {each["id"] for each in await items.of_type("parkedKey")} == {"1", "2", "3"}


async def test_a_cursor_that_cannot_be_read_is_an_error_that_says_so(network: tuple[Network, Database]) -> None:
    between, database = network
    await database.claim(0)
    assert between.lose() == 1

    with pytest.raises(FeedError, match=r"shard 0, .* did not answer within 1 s"):
        await database.claim(0)

    await database.claim(0)


@pytest.mark.parametrize("lost", [False, True], ids=["by a lock", "by silence"])
async def test_a_transaction_that_is_cut_off_is_not_carried_out(
    network: tuple[Network, Database], outbox_database: str, lost: bool
) -> None:
    between, database = network
    items = SqlItems(database)
    blocking = await connect_async(outbox_database)
    await blocking.execute(Statement(quarantine.BEGIN))
    await blocking.execute(Statement(quarantine.INSERT, quarantine.values_of(item("2"))))

    storing = asyncio.create_task(items.batch("k", [Create(item("1")), Create(item("2"))]))
    async with asyncio.timeout(LIMIT_S):
        while not (await blocking.execute(Statement(_WAITING))).rows:
            await asyncio.sleep(0.01)
    if lost:
        between.lose()
    with pytest.raises(StoreError, match=r"did not answer within 1 s"):
        await storing

    await blocking.execute(Statement(quarantine.ROLLBACK))
    await blocking.close()
    assert await items.of_type("parkedKey") == []
