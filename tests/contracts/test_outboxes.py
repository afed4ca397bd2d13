"""The contract of every outbox: the one in memory, a container in Cosmos DB, and a feed in PostgreSQL."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.changefeed import START as START_OF_FEED
from outbox_relay.changefeed import AsyncConsumer, AsyncFeed
from outbox_relay.changefeed.statements import AsyncSession, Statement
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import ManualClock
from outbox_relay.operator.backends.cosmos.reader import CosmosOutbox
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from relay.backends.outbox import Committed, NextPage, Outbox, Range
from relay.config.settings import CONSUMER, Settings, SqlFeed
from relay.core.documents import SourceDocument
from relay.core.errors import ServiceError
from relay.core.events import Event, Reason, Rejected
from tests.support import sql_outbox
from tests.support.in_memory_outbox import InMemoryOutbox
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, provisioned, sql_settings
from tests.support.watchdog import WATCHDOG_S

# Some minutes ago: a range that ended then may have its last events written still.
START = int(time.time()) - 100
EVERYTHING = Range(START, START + 1000)


class Harness(ABC):
    """One outbox: who writes to it, and how far the relay is."""

    outbox: Outbox

    @abstractmethod
    async def commit(self, *documents: dict[str, Any], at: int | None = None) -> None:
        """Commit documents of one key in one transaction; `at` is the time, in seconds since 1970."""

    @abstractmethod
    async def pass_all(self) -> None:
        """Set the positions to those after everything was published."""

    @abstractmethod
    def again(self, *, from_beginning: bool = True) -> Outbox:
        """The same outbox, as another process reads it."""

    @abstractmethod
    async def break_down(self) -> None:
        """It cannot be read any more."""

    async def close(self) -> None:  # noqa: B027
        """Close what the test has opened."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._memory = self.outbox = InMemoryOutbox()

    async def commit(self, *documents: dict[str, Any], at: int | None = None) -> None:
        own = [{name: each[name] for name in each if name[0] != "_"} for each in documents]
        self._memory.store(*own, at=int(time.time()) if at is None else at)

    async def pass_all(self) -> None:
        self._memory.pass_all()

    def again(self, *, from_beginning: bool = True) -> Outbox:
        memory = self._memory
        other = InMemoryOutbox(memory.documents, memory.committed, positions_at=memory.positions_at)
        return other if from_beginning else other.from_the_relays_position()

    async def break_down(self) -> None:
        self._memory.fails = "no route to the outbox"


class OnEmulator(Harness):
    def __init__(
        self, settings: Settings, trigger: TriggerLeases, server: CosmosServer, clock: ManualClock
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._opened: list[CosmosOutbox] = []
        self._trigger = trigger
        self.server = server
        self.outbox = self.again(from_beginning=True)

    async def commit(self, *documents: dict[str, Any], at: int | None = None) -> None:
        self._clock.now = time.time() if at is None else float(at)
        written = [{name: each[name] for name in each if name[0] != "_"} for each in documents]
        await self._trigger.data.execute_item_batch(
            [("upsert", (document,)) for document in written], partition_key=written[0]["partitionKey"]
        )

    async def pass_all(self) -> None:
        await self._trigger.pass_all()

    def again(self, *, from_beginning: bool = True) -> Outbox:
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

    async def commit(self, *documents: dict[str, Any], at: int | None = None) -> None:
        await self._writer.commit(*documents, at=None if at is None else datetime.fromtimestamp(at, UTC))

    async def number(self) -> None:
        """Give positions, as any reader of the feed does."""
        feed, cursor = AsyncFeed(self.session, TABLE), START_OF_FEED
        while (page := await feed.read(0, cursor, 1000)).entries:
            cursor = page.cursor

    async def pass_all(self) -> None:
        feed = AsyncFeed(self.session, TABLE)
        consumer = AsyncConsumer(self.session, TABLE, CONSUMER)
        (claim,) = await consumer.claims([0])
        cursor = claim.cursor
        while (page := await feed.read(0, cursor, 1000)).entries:
            cursor = page.cursor
        await consumer.store(claim, cursor)

    def again(self, *, from_beginning: bool = True) -> Outbox:
        self._opened.append(SqlOutbox(self._settings, from_beginning=from_beginning))
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
            clock = ManualClock(START - 1.0)
            server = await stack.enter_async_context(CosmosServer(clock=clock, physical_partitions=2))
            provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
            client = await stack.enter_async_context(CosmosClient.from_connection_string(server.connection_string))
            settings = Settings.from_environment(
                {
                    "COSMOS": server.connection_string,
                    "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
                }
            )
            made = OnEmulator(settings, TriggerLeases(client), server, clock)
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


async def test_a_renewal_changes_whenever_the_owner_stores_its_position_and_only_then(harness: Harness) -> None:
    found = []
    for name in ("a", "b"):
        await harness.commit(event(name, "k"))
        await everything(harness.outbox)
        await harness.pass_all()
        read = [
            {(each.name, each.renewal, each.held_s) for each in await harness.outbox.positions()} for _ in range(2)
        ]
        assert read[0] == read[1]
        found.append(read[0])

    assert found[0] != found[1]
    assert all(0 < held_s < math.inf for _, _, held_s in found[0] | found[1])


async def next_pages(outbox: Outbox, limit: int = 10) -> list[NextPage]:
    """Those that have documents; there is one of each partition."""
    pages = await outbox.next_pages(limit)
    assert [each.partition for each in pages] == [each.name for each in await outbox.positions()]
    return [each for each in pages if each.received.documents]


async def test_the_next_pages_have_what_the_relay_has_not_passed_as_it_validates_it(harness: Harness) -> None:
    await harness.commit(event("a", "k"))
    await harness.pass_all()
    assert await next_pages(harness.outbox) == []
    await harness.commit(event("b", "k") | {"data": "no object"})
    await harness.commit(event("contact", "k") | {"type": "contact"})
    await harness.commit(event("c", "k"))
    await harness.commit(event("d", "k"))
    if isinstance(harness, OnPostgres):
        assert await next_pages(harness.outbox) == []
        await harness.number()

    [page] = await next_pages(harness.outbox, 3)

    [refused], [sound] = page.received.rejected, page.received.events
    assert (refused.id, refused.reason, refused.partition_key) == ("b", Reason.DATA_NOT_OBJECT, "k")
    assert (sound.id, page.received.ignored) == ("c", 1)
    assert sound.committed_at == pytest.approx(time.time(), abs=WATCHDOG_S)
    await harness.pass_all()
    assert await next_pages(harness.outbox) == []


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


async def test_an_outbox_has_one_identity(harness: Harness) -> None:
    assert await harness.outbox.identity()
    assert await harness.outbox.identity() == await harness.again().identity()


# what is in a range


async def documents_of(outbox: Outbox, chosen: Range) -> list[SourceDocument]:
    """The documents of a range, as many as were counted, if they were."""
    reading = await outbox.in_range(chosen)
    count = await reading.count()
    found = [document async for page in reading.pages() for document in page]
    assert count in (None, len(found))
    assert (reading.unread, reading.gone) == (0, [])
    return found


async def ids_of(outbox: Outbox, chosen: Range) -> list[str]:
    return [document.fields["id"] for document in await documents_of(outbox, chosen)]


async def test_a_range_has_every_event_once_and_each_key_in_commit_order(harness: Harness) -> None:
    for number in range(20):
        await harness.commit(event(f"{number:02}", f"{'az'[number % 2]}{number % 5}"), at=START + number)

    found = await ids_of(harness.outbox, EVERYTHING)

    assert sorted(found) == [f"{number:02}" for number in range(20)]
    for key in range(10):
        of_one = [identifier for identifier in found if int(identifier) % 10 == key]
        assert of_one == sorted(of_one)


async def test_a_range_has_the_events_of_a_commit_in_their_order(harness: Harness) -> None:
    await harness.commit(*(event(f"{number}", "k") | {"order": number} for number in range(5)), at=START)
    await harness.commit(*(event(f"{number}", "k") | {"order": number} for number in range(5, 9)), at=START)

    assert await ids_of(harness.outbox, EVERYTHING) == [f"{number}" for number in range(9)]


async def test_a_range_has_what_was_committed_from_its_start_to_before_its_end(harness: Harness) -> None:
    for number in range(4):
        await harness.commit(event(f"{number}", "k"), at=START + number)

    assert await ids_of(harness.outbox, Range(START + 1, START + 3)) == ["1", "2"]


async def test_a_range_has_only_its_type_its_key_and_its_action(harness: Harness) -> None:
    await harness.commit(event("a", "k"), at=START)
    await harness.commit(event("b", "k") | {"type": "contact"}, at=START)
    await harness.commit(event("c", "other"), at=START)
    await harness.commit(event("d", "k", action="Removed"), at=START)
    await harness.commit(event("e", "k") | {"data": "text"}, at=START)

    assert sorted(await ids_of(harness.outbox, EVERYTHING)) == ["a", "c", "d", "e"]
    for chosen, expected in (
        (Range(START, START + 9, "k"), ["a", "d", "e"]),
        (Range(START, START + 9, "k", "Removed"), ["d"]),
        (Range(START, START + 9, "nobody"), []),
    ):
        assert await ids_of(harness.outbox, chosen) == expected


async def test_the_documents_of_a_range_are_events_or_say_why_not(harness: Harness) -> None:
    await harness.commit(event("a", "k"), at=START)
    await harness.commit(event("b", "k") | {"data": "text"}, at=START)

    one, other = [harness.outbox.event_of(each) for each in await documents_of(harness.outbox, EVERYTHING)]

    assert isinstance(one, Event)
    assert (one.id, one.partition_key, one.committed_at) == ("a", "k", START)
    assert isinstance(other, Rejected)
    assert (other.id, other.reason) == ("b", Reason.DATA_NOT_OBJECT)


# what the relay has passed


@pytest.mark.parametrize("identifier", ["plain", "ü😀 /?#"])
async def test_an_event_is_found_with_its_type_and_whether_it_was_passed(
    harness: Harness, identifier: str
) -> None:
    await harness.commit(event("before", "k"))
    await harness.commit(event(identifier, "k"))
    await harness.commit(event("contact", "k") | {"type": "contact"})
    found = await harness.outbox.find("k", identifier)
    current = await harness.outbox.current("k", identifier)
    assert current is not None
    assert harness.outbox.event_of(current).id == identifier
    assert await harness.outbox.current("other", identifier) is None
    assert found is not None
    assert not found.passed

    await harness.pass_all()

    passed = await harness.again().find("k", identifier)
    assert passed is not None
    assert (passed.type, passed.passed, len(passed.places)) == ("domainEvent", True, 1)
    contact = await harness.again().find("k", "contact")
    assert contact is not None
    assert contact.type == "contact"
    assert await harness.again().find("other", identifier) is None
    assert await harness.again().find("k", "another") is None


async def test_a_document_of_a_range_was_passed_or_not(harness: Harness) -> None:
    await harness.commit(event("a", "k"), at=START)
    await harness.pass_all()
    await harness.commit(event("b", "k"), at=START + 1)

    documents = await documents_of(harness.outbox, EVERYTHING)

    assert [await harness.outbox.passed(document) for document in documents] == [True, False]


async def test_the_events_behind_another_of_its_key_that_were_passed_are_known(harness: Harness) -> None:
    for name, key in (("a", "k"), ("b", "k"), ("c", "other"), ("d", "k")):
        await harness.commit(event(name, key), at=START)
    await harness.pass_all()
    await harness.commit(event("e", "k"), at=START)
    outbox = harness.outbox
    events = [outbox.event_of(document) for document in await documents_of(outbox, EVERYTHING)]

    behind = {each.id: sorted(await outbox.passed_behind(each)) for each in events if isinstance(each, Event)}

    assert behind == {"a": ["b", "d"], "b": ["d"], "c": [], "d": [], "e": []}


async def test_a_sound_outbox_has_no_obstacles(harness: Harness) -> None:
    await harness.commit(event("a", "k"))

    assert await harness.outbox.obstacles() == []


async def test_an_outbox_that_cannot_be_read_is_a_service_error(harness: Harness) -> None:
    await harness.commit(event("a", "k"))
    await harness.break_down()

    for reading in (
        harness.outbox.news(10),
        harness.outbox.positions(),
        harness.outbox.of_key("k", 3),
        harness.outbox.find("k", "a"),
        documents_of(harness.outbox, EVERYTHING),
    ):
        with pytest.raises(ServiceError):
            await reading
