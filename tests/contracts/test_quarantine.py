"""What every quarantine must do: the one in memory, and the container in Cosmos DB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from relay.cosmos import holds
from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import CosmosQuarantine
from relay.errors import QuarantineError
from relay.events import Reason, Rejected
from relay.holds import Holds
from relay.ports import Quarantine
from relay.settings import Settings
from tests.support.in_memory import InMemoryQuarantine
from tests.support.outbox import event, events, sound
from tests.unit.relay.accounts import FakeContainer, FakeContainers


class Harness(ABC):
    """One quarantine, as the relay and as an operator see it."""

    quarantine: Quarantine

    @abstractmethod
    async def records(self) -> list[tuple[str, str]]:
        """Document id and reason of each record, in order of arrival."""

    @abstractmethod
    async def order(self, key: str, identifier: str) -> None:
        """Ask for an event to be set aside."""

    @abstractmethod
    async def release(self, key: str) -> None:
        """Park a key no longer."""

    @abstractmethod
    async def break_down(self) -> None:
        """Nothing can be read or written from now on."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._held = self.quarantine = InMemoryQuarantine()

    async def records(self) -> list[tuple[str, str]]:
        return [(item.id, str(item.reason)) for item in self._held.records]

    async def order(self, key: str, identifier: str) -> None:
        self._held.ordered.add((key, identifier))

    async def release(self, key: str) -> None:
        self._held.parked.discard(key)

    async def break_down(self) -> None:
        self._held.broken = True


class InCosmos(Harness):
    """Over a container, which may be in memory or on the wire."""

    def __init__(self, quarantine: CosmosQuarantine, container: ContainerProxy | FakeContainer) -> None:
        self.quarantine = quarantine
        self._container = container

    async def records(self) -> list[tuple[str, str]]:
        if isinstance(self._container, FakeContainer):
            stored = await self._container.stored()
        else:
            stored = [item async for item in self._container.read_all_items()]
        found = [item for item in stored if item["type"] == "quarantinedEvent"]
        found.sort(key=lambda item: (item["quarantinedAt"], item["position"]))
        return [(item["document"]["id"], item["reason"]) for item in found]

    async def order(self, key: str, identifier: str) -> None:
        await self._container.create_item(holds.order(key, identifier))

    async def release(self, key: str) -> None:
        await self._container.delete_item(holds.PARKED_ID, key)


class OnContainer(InCosmos):
    def __init__(self) -> None:
        self._told = FakeContainer()
        super().__init__(CosmosQuarantine(FakeContainers(self._told).all), self._told)

    async def break_down(self) -> None:
        self._told.answers = [OSError("no route to host")] * 10


class OnEmulator(InCosmos):
    def __init__(self, settings: Settings, container: ContainerProxy, server: CosmosServer) -> None:
        super().__init__(CosmosQuarantine(Containers(settings)), container)
        self._server = server

    async def break_down(self) -> None:
        await self._server.__aexit__(None, None, None)


@pytest.fixture(params=["in memory", "container in memory", "Cosmos DB emulator"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with AsyncExitStack() as stack:
        if request.param == "in memory":
            made: Harness = InMemory()
        elif request.param == "container in memory":
            made = OnContainer()
        else:
            server = CosmosServer()
            await server.__aenter__()
            stack.push_async_exit(server)
            provision(server.account, [ContainerSpec.parse("outbox/quarantine:/partitionKey")])
            client = await stack.enter_async_context(
                CosmosClient.from_connection_string(server.connection_string, retry_total=0)
            )
            container = client.get_database_client("outbox").get_container_client("quarantine")
            settings = Settings.from_environment(
                {
                    "COSMOS": server.connection_string,
                    "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
                }
            )
            made = OnEmulator(settings, container, server)
        yield made
        await made.quarantine.close()


def rejected(*identifiers: str, reason: Reason = Reason.MESSAGE_REFUSED, key: str = "k") -> list[Rejected]:
    return [
        Rejected.of(sound(event(identifier, key), position), reason, "")
        for position, identifier in enumerate(identifiers)
    ]


async def test_what_is_rejected_is_stored_once_in_its_order(harness: Harness) -> None:
    items = rejected("b", "a", "c")

    await harness.quarantine.store(items, "i1", park=False)
    await harness.quarantine.store(items, "i1", park=False)

    assert await harness.records() == [(name, "message-refused") for name in "bac"]
    assert await harness.quarantine.holds() == Holds()


async def test_an_empty_list_needs_no_quarantine(harness: Harness) -> None:
    await harness.break_down()

    await harness.quarantine.store([], "i1", park=True)


async def test_the_first_record_parks_its_key_and_those_behind_it_are_stored(harness: Harness) -> None:
    first, second = rejected("a")[0], rejected("b", reason=Reason.KEY_PARKED)[0]

    await harness.quarantine.store([first], "i1", park=True)
    await harness.quarantine.store([second], "i2", park=True)

    assert await harness.quarantine.holds() == Holds(parked=frozenset({"k"}))
    assert await harness.records() == [("a", "message-refused"), ("b", "key-parked")]


async def test_behind_a_released_key_nothing_is_stored(harness: Harness) -> None:
    await harness.quarantine.store(rejected("a"), "i1", park=True)
    await harness.release("k")

    with pytest.raises(QuarantineError, match="released"):
        await harness.quarantine.store(rejected("b", reason=Reason.KEY_PARKED), "i2", park=True)

    assert await harness.records() == [("a", "message-refused")]
    assert await harness.quarantine.holds() == Holds()


async def test_a_document_without_a_key_parks_nothing(harness: Harness) -> None:
    keyless = Rejected({"id": "x", "partitionKey": 7}, Reason.PARTITION_KEY_NOT_STRING, "")

    await harness.quarantine.store([keyless, *rejected("a")], "i1", park=True)

    assert await harness.quarantine.holds() == Holds(parked=frozenset({"k"}))
    assert sorted(await harness.records()) == [("a", "message-refused"), ("x", "partition-key-not-string")]


@pytest.mark.parametrize("park", [False, True])
async def test_an_order_is_held_until_its_event_is_stored(harness: Harness, park: bool) -> None:
    await harness.order("k", "e/1?#")
    await harness.order("k", "e2")
    before = await harness.quarantine.holds()

    await harness.quarantine.store(rejected("e/1?#", reason=Reason.SET_ASIDE), "i1", park=park)

    assert before.set_aside == {("k", "e/1?#"), ("k", "e2")}
    assert (await harness.quarantine.holds()).set_aside == {("k", "e2")}


async def test_a_quarantine_that_cannot_be_reached_fails_both_ways(harness: Harness) -> None:
    await harness.break_down()

    with pytest.raises(QuarantineError):
        await harness.quarantine.holds()
    with pytest.raises(QuarantineError):
        await harness.quarantine.store(rejected("a"), "i1", park=False)


async def test_many_documents_of_many_keys_keep_their_order(harness: Harness) -> None:
    documents = [document for key in "xyz" for document in events(key, 40)]
    items = [
        Rejected.of(sound(document, position), Reason.MESSAGE_REFUSED, "")
        for position, document in enumerate(documents)
    ]

    await harness.quarantine.store(items, "i1", park=True)

    stored = [name for name, _ in await harness.records()]
    assert [[name for name in stored if name[0] == key] for key in "xyz"] == [
        [f"{key}-{number}" for number in range(40)] for key in "xyz"
    ]
