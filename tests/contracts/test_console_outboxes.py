"""What the console asks of every outbox: the one in memory, a container in Cosmos DB, and a feed in PostgreSQL."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from changefeed import AsyncConsumer, AsyncFeed
from changefeed.statements import AsyncSession, Statement
from local.stack.environment import CONTAINERS, container_argument
from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from relay.console.model import Committed
from relay.console.ports import Outbox
from relay.cosmos.reader import CosmosOutbox
from relay.errors import ServiceError
from relay.settings import Settings, SqlFeed
from relay.sql.database import CONSUMER
from relay.sql.reader import SqlOutbox
from tests.support import sql_outbox
from tests.support.console import InMemoryOutbox
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, provisioned, sql_settings


class Harness(ABC):
    """One outbox: who writes to it, and how far the relay is."""

    outbox: Outbox

    @abstractmethod
    async def commit(self, *documents: dict[str, Any]) -> None:
        """Commit documents of one key in one transaction."""

    @abstractmethod
    async def pass_all(self) -> None:
        """As if the relay had published everything."""

    @abstractmethod
    def again(self, *, from_beginning: bool) -> Outbox:
        """The same outbox, as another console reads it."""

    @abstractmethod
    async def break_down(self) -> None:
        """It cannot be read any more."""

    async def close(self) -> None:  # noqa: B027
        """Close what the test has opened."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._memory = self.outbox = InMemoryOutbox()

    async def commit(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            if document["type"] == "domainEvent":
                self._memory.commit(
                    document["id"],
                    document["partitionKey"],
                    action=document["data"]["action"],
                    created_at=document["data"]["createdAt"],
                    sequence=document.get("sequence"),
                    traceparent=document.get("traceparent"),
                    data=json.dumps(document["data"]),
                )

    async def pass_all(self) -> None:
        self._memory.pass_all()

    def again(self, *, from_beginning: bool) -> Outbox:
        other = InMemoryOutbox(self._memory.committed, positions_at=self._memory.positions_at)
        return other if from_beginning else other.from_the_relays_position()

    async def break_down(self) -> None:
        self._memory.fails = "no route to the outbox"


class OnEmulator(Harness):
    def __init__(self, settings: Settings, trigger: TriggerLeases, server: CosmosServer) -> None:
        self._settings = settings
        self._opened: list[CosmosOutbox] = []
        self._trigger = trigger
        self.server = server
        self.outbox = self.again(from_beginning=True)

    async def commit(self, *documents: dict[str, Any]) -> None:
        written = [{name: each[name] for name in each if name[0] != "_"} for each in documents]
        await self._trigger.data.execute_item_batch(
            [("upsert", (document,)) for document in written], partition_key=written[0]["partitionKey"]
        )

    async def pass_all(self) -> None:
        await self._trigger.pass_all()

    def again(self, *, from_beginning: bool) -> Outbox:
        self._opened.append(CosmosOutbox(self._settings, from_beginning=from_beginning))
        return self._opened[-1]

    async def break_down(self) -> None:
        await self.server.__aexit__(None, None, None)

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


class OnPostgres(Harness):
    def __init__(self, feed: SqlFeed, session: AsyncSession) -> None:
        self._settings = feed
        self._opened: list[SqlOutbox] = []
        self._writer = sql_outbox.SqlOutbox(session)
        self.session = session
        self.outbox = self.again(from_beginning=True)

    async def commit(self, *documents: dict[str, Any]) -> None:
        await self._writer.commit(*documents)

    async def number(self) -> None:
        """Give positions, as any reader of the feed does."""
        await AsyncFeed(self.session, TABLE).read(0, page_size=1000)

    async def pass_all(self) -> None:
        feed = AsyncFeed(self.session, TABLE)
        consumer = AsyncConsumer(self.session, TABLE, CONSUMER)
        (claim,) = await consumer.claims([0])
        cursor = claim.cursor
        while (page := await feed.read(0, cursor, 1000)).entries:
            cursor = page.cursor
        await consumer.store(claim, cursor)

    def again(self, *, from_beginning: bool) -> Outbox:
        self._opened.append(SqlOutbox(self._settings, "domainEvent", from_beginning=from_beginning))
        return self._opened[-1]

    async def break_down(self) -> None:
        await self.session.execute(Statement("drop schema changefeed cascade"))

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


@pytest.fixture(params=["in memory", "Cosmos DB emulator", "PostgreSQL"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with AsyncExitStack() as stack:
        if request.param == "in memory":
            yield InMemory()
            return
        made: Harness
        if request.param == "PostgreSQL":
            feed = sql_settings(request.getfixturevalue("postgres_database"))
            session = await provisioned(feed.connection_string)
            stack.push_async_callback(session.close)
            made = OnPostgres(feed, session)
        else:
            server = await stack.enter_async_context(CosmosServer(physical_partitions=2))
            provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
            client = await stack.enter_async_context(CosmosClient.from_connection_string(server.connection_string))
            settings = Settings.from_environment(
                {
                    "COSMOS": server.connection_string,
                    "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
                }
            )
            made = OnEmulator(settings, TriggerLeases(client), server)
        stack.push_async_callback(made.close)
        yield made


async def everything(outbox: Outbox, limit: int = 1000) -> list[Committed]:
    """All news there are."""
    found: list[Committed] = []
    while events := await outbox.news(limit):
        found += events
    return found


def of_key(events: list[Committed], key: str) -> list[str]:
    return [each.id for each in sorted(events, key=lambda each: each.place) if each.partition_key == key]


async def test_news_are_every_event_once_and_each_key_in_commit_order(harness: Harness) -> None:
    for number in range(30):
        await harness.commit(event(f"{number:02}", f"key-{number % 6}"))
        await harness.commit(event(f"contact-{number}", f"key-{number % 6}") | {"type": "contact"})

    found = await everything(harness.outbox, 4)

    assert sorted(each.id for each in found) == [f"{number:02}" for number in range(30)]
    for key in range(6):
        ids = [f"{number:02}" for number in range(key, 30, 6)]
        assert [each.id for each in found if each.partition_key == f"key-{key}"] == ids
        assert of_key(found, f"key-{key}") == ids


async def test_an_event_has_what_its_document_has(harness: Harness) -> None:
    document = event("a b%2F'c", "köy") | {"sequence": 7, "traceparent": "00-0af7-b7ad-01"}
    await harness.commit(document)

    (found,) = await everything(harness.outbox)

    assert (found.id, found.partition_key, found.sequence, found.traceparent) == (
        *("a b%2F'c", "köy"),
        *(7, "00-0af7-b7ad-01"),
    )
    assert (found.action, found.created_at) == (document["data"]["action"], document["data"]["createdAt"])


async def test_later_events_are_later_news(harness: Harness) -> None:
    await harness.commit(event("a", "k"))
    await everything(harness.outbox)

    await harness.commit(event("b", "k"))
    await harness.commit(event("c", "other"))

    assert {each.id for each in await everything(harness.outbox)} == {"b", "c"}
    assert await harness.outbox.news(10) == []


async def test_a_console_that_begins_now_begins_with_what_the_relay_has_not_passed(harness: Harness) -> None:
    await harness.commit(event("a", "k"))
    await harness.commit(event("b", "other"))
    await harness.pass_all()
    await harness.commit(event("c", "k"))
    outbox = harness.again(from_beginning=False)

    assert [each.id for each in await everything(outbox)] == ["c"]
    assert {each.id for each in await everything(harness.again(from_beginning=True))} == {"a", "b", "c"}


async def test_a_position_says_what_the_relay_has_passed(harness: Harness) -> None:
    await harness.commit(event("a", "k"), event("b", "k"))
    await harness.commit(event("c", "other"))
    await everything(harness.outbox)
    assert all(each.place is None for each in await harness.outbox.positions())

    await harness.pass_all()
    await harness.commit(event("d", "k"))
    await harness.commit(event("e", "other"))
    positions = {each.name: each for each in await harness.outbox.positions()}
    found = {each.id: each for each in await everything(harness.again(from_beginning=True))}

    passed = {name for name, each in found.items() if each.place <= (positions[each.partition].place or ())}
    assert (passed, set(found)) == ({"a", "b", "c"}, {"a", "b", "c", "d", "e"})
    for each in found.values():
        assert await harness.outbox.partition_of(each.partition_key) in (None, each.partition)
    assert all(each.position for each in positions.values())


async def test_the_events_of_one_commit_have_places_in_their_order(harness: Harness) -> None:
    documents = [event(f"{number}", "k") | {"order": number} for number in range(5)]
    await harness.commit(*documents)

    found = await everything(harness.outbox)
    assert of_key(found, "k") == ["0", "1", "2", "3", "4"]
    assert len({each.place for each in found}) == 5


async def test_the_last_events_of_a_key_are_found_with_their_places(harness: Harness) -> None:
    for number in range(6):
        await harness.commit(event(f"a %{number}'", "k"))
        await harness.commit(event(f"other-{number}", "other"))
    await harness.pass_all()
    await harness.commit(event("last", "k"))
    places = {each.id: (each.partition, each.place) for each in await everything(harness.outbox)}

    found, more = await harness.outbox.of_key("k", 3)
    assert ([each.id for each in found], more) == (["a %4'", "a %5'", "last"], True)
    found, more = await harness.outbox.of_key("k", 7)
    assert ([each.id for each in found], more) == ([*(f"a %{number}'" for number in range(6)), "last"], False)
    assert {each.id: (each.partition, each.place) for each in found}.items() <= places.items()
    assert await harness.outbox.of_key("nobody", 3) == ([], False)


async def test_the_data_of_events_is_json_text(harness: Harness) -> None:
    await harness.commit(event("a %b'", "k", text="ü"))
    await harness.commit(event("c", "k"))
    await harness.commit(event("d", "other"))

    found = await harness.outbox.data("k", ["a %b'", "d", "gone"])

    assert found.keys() == {"a %b'"}
    assert json.loads(found["a %b'"]) == event("a %b'", "k", text="ü")["data"]


async def test_an_outbox_that_cannot_be_read_is_a_service_error(harness: Harness) -> None:
    await harness.commit(event("a", "k"))
    await harness.break_down()

    for reading in (
        harness.outbox.news(10),
        harness.outbox.positions(),
        harness.outbox.of_key("k", 3),
    ):
        with pytest.raises(ServiceError):
            await reading
