"""The contract of every source: the one in memory, the outbox container in Cosmos DB, and a feed in PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.changefeed import START, AsyncConsumer, AsyncFeed, Page
from outbox_relay.changefeed.statements import AsyncSession, Statement
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.source import CosmosSource
from relay.backends.sql.database import Database
from relay.backends.sql.rows import document_of
from relay.backends.sql.source import Ownership, SqlBatch, SqlSource, now
from relay.config.settings import CONSUMER, Settings
from relay.core.documents import StoredDocument
from relay.core.errors import SourceError
from relay.core.ports import Source
from relay.routes.selection import BY_DEFAULT
from tests.support.in_memory import InMemorySource
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox, provisioned, sql_settings


class Harness(ABC):
    """One source, and who writes to it and moves its checkpoint."""

    source: Source[Any]
    empty: Any = ()

    @abstractmethod
    async def commit(self, *documents: dict[str, Any]) -> Any:
        """Commit documents one by one; returns them as a batch of the source."""

    def documents(self, batch: Any) -> list[StoredDocument]:
        """The documents of a batch."""
        return list(batch)

    @abstractmethod
    async def checkpoint(self) -> None:
        """Move the checkpoint behind all that was committed."""

    @abstractmethod
    async def break_down(self) -> None:
        """The checkpoint cannot be read any more."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._memory = InMemorySource()
        self.source = self._memory
        self._committed: list[StoredDocument] = []

    async def commit(self, *documents: dict[str, Any]) -> list[StoredDocument]:
        batch: list[StoredDocument] = [document | {"committedAt": 1_700_000_000} for document in documents]
        self._committed += batch
        return batch

    async def checkpoint(self) -> None:
        self._memory.passed |= {(document["partitionKey"], document["id"]) for document in self._committed}

    async def break_down(self) -> None:
        self._memory.broken = True


class OnPostgres(Harness):
    def __init__(self, database: Database, session: AsyncSession) -> None:
        self.source = SqlSource(BY_DEFAULT, database.claim)
        self.empty = self._batch(Page([], START))
        self._database = database
        self._outbox = SqlOutbox(session)
        self._session = session
        self._cursor = START

    def _batch(self, page: Page) -> SqlBatch:
        return SqlBatch(0, page, Ownership(600, now()))

    async def commit(self, *documents: dict[str, Any]) -> SqlBatch:
        for document in documents:
            await self._outbox.commit(document)
        page = await AsyncFeed(self._session, TABLE).read(0, self._cursor, 1000)
        self._cursor = page.cursor
        return self._batch(page)

    def documents(self, batch: SqlBatch) -> list[StoredDocument]:
        return [document_of(entry, 0, BY_DEFAULT).stored for entry in batch.page.entries]

    async def checkpoint(self) -> None:
        consumer = AsyncConsumer(self._session, TABLE, CONSUMER)
        (claim,) = await consumer.claims([0])
        await consumer.store(claim, self._cursor)

    async def break_down(self) -> None:
        await self._session.execute(Statement("drop schema changefeed cascade"))


class OnEmulator(Harness):
    def __init__(self, settings: Settings, trigger: TriggerLeases, server: CosmosServer) -> None:
        self._containers = Containers(settings.in_cosmos)
        self.source = CosmosSource(settings.selection, self._containers)
        self._trigger = trigger
        self._server = server

    async def commit(self, *documents: dict[str, Any]) -> list[StoredDocument]:
        for document in documents:
            await self._trigger.data.create_item({name: document[name] for name in document if name[0] != "_"})
        feed = self._trigger.data.query_items_change_feed(partition_key="k", start_time="Beginning")
        delivered: list[StoredDocument] = [document async for document in feed]
        return delivered[-len(documents) :]

    async def checkpoint(self) -> None:
        await self._trigger.pass_all()

    async def break_down(self) -> None:
        await self._containers.close()
        await self._server.__aexit__(None, None, None)


@pytest.fixture(params=["in memory", "Cosmos DB emulator", "PostgreSQL"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    if request.param == "in memory":
        yield InMemory()
        return
    if request.param == "PostgreSQL":
        feed = sql_settings(request.getfixturevalue("postgres_database"))
        database = Database(feed)
        session = await provisioned(feed.connection_string)
        yield OnPostgres(database, session)
        await database.close()
        await session.close()
        return
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(CosmosServer())
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        client = await stack.enter_async_context(CosmosClient.from_connection_string(server.connection_string))
        settings = Settings.from_environment(
            {
                "COSMOS": server.connection_string,
                "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
            }
        )
        made = OnEmulator(settings, TriggerLeases(client), server)
        yield made
        await made._containers.close()


async def test_a_batch_is_sorted_into_events_rejections_and_the_rest(harness: Harness) -> None:
    batch = await harness.commit(
        event("e1", "k"), event("c1", "k") | {"type": "contact"}, event("e2", "k") | {"data": 7}, event("e3", "k")
    )

    received = await harness.source.read(batch)

    assert [(each.id, each.position) for each in received.events] == [("e1", 0), ("e3", 2)]
    assert [(each.id, each.position, each.partition_key) for each in received.rejected] == [("e2", 1, "k")]
    assert (received.ignored, received.documents) == (1, 4)
    delivered = harness.documents(batch)
    assert [each.document.stored for each in received.events] == [delivered[0], delivered[3]]
    assert all(isinstance(each.committed_at, int) for each in received.events)


async def test_an_empty_batch_holds_nothing(harness: Harness) -> None:
    assert (await harness.source.read(harness.empty)).documents == 0


async def test_what_the_checkpoint_has_passed_is_settled_and_no_more(harness: Harness) -> None:
    invalid = event("e2", "k") | {"data": 7}
    first = await harness.source.read(await harness.commit(event("e1", "k"), invalid, event("e3", "k")))
    await harness.checkpoint()
    (later,) = (await harness.source.read(await harness.commit(event("e4", "k")))).events
    later = later._replace(position=3)

    assert await harness.source.passed_positions([*first.events, *first.rejected, later]) == {0, 1, 2}
    assert await harness.source.passed_positions([later]) == frozenset()


async def test_a_checkpoint_that_cannot_be_read_is_an_error(harness: Harness) -> None:
    events = (await harness.source.read(await harness.commit(event("e1", "k")))).events
    await harness.break_down()

    with pytest.raises(SourceError):
        await harness.source.passed_positions(events)
