"""The contract of every store of large events' contents: the one in memory, and Blob Storage, on Azurite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from relay.config.clients import Connection
from relay.config.settings import ClaimCheck
from relay.core.errors import ContentError
from relay.large.blobs import Blobs
from relay.large.claims import ContentStore
from relay.large.content import Content
from relay.servicebus.messages import Message
from tests.support.azurite import Container, new_container
from tests.support.in_memory_contents import InMemoryContents

pytestmark = pytest.mark.xdist_group("azurite")


class Harness(ABC):
    """One store, and what it has."""

    store: ContentStore

    @abstractmethod
    async def stored(self) -> dict[str, bytes]:
        """The bodies by address."""

    @abstractmethod
    def break_down(self) -> None:
        """Store nothing from now on."""

    @abstractmethod
    def mend(self) -> None:
        """Work again."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._memory = self.store = InMemoryContents()

    async def stored(self) -> dict[str, bytes]:
        return self._memory.stored

    def break_down(self) -> None:
        self._memory.broken = True

    def mend(self) -> None:
        self._memory.broken = False


class OnAzurite(Harness):
    def __init__(self, container: Container) -> None:
        self._container = container
        settings = container.settings
        self.store = Blobs(
            ClaimCheck(Connection(connection_string=settings["BLOBS"]), settings["RELAY_BLOB_CONTAINER"])
        )

    async def stored(self) -> dict[str, bytes]:
        return {name: each.body for name, each in (await self._container.stored()).items()}

    def break_down(self) -> None:
        self._container.faults = [403]

    def mend(self) -> None:
        self._container.faults = []


@pytest.fixture(params=["in memory", "Azurite"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with AsyncExitStack() as stack:
        if request.param == "in memory":
            made: Harness = InMemory()
        else:
            made = OnAzurite(await stack.enter_async_context(new_container(request.getfixturevalue("azurite"))))
        yield made
        await made.store.close()


def content(identifier: str, body: bytes = b'{"action":"A"}', key: str = "k") -> Content:
    return Content.of(Message(identifier, key, "A", body, {}))


async def test_a_content_is_stored_whole_and_its_address_is_no_secret(harness: Harness) -> None:
    large = content("e1", b"\x00\xff" * 500_000)

    address = await harness.store.put(large)

    assert await harness.stored() == {large.name: large.body}
    assert address.endswith(f"/{large.name}")
    assert "?" not in address


async def test_the_same_content_of_the_same_event_is_stored_once_whoever_stores_it(harness: Harness) -> None:
    first = await harness.store.put(content("e1"))
    second = await harness.store.put(content("e1"))

    assert first == second
    assert len(await harness.stored()) == 1


async def test_every_event_and_every_version_of_one_has_its_own(harness: Harness) -> None:
    several = [content("e1"), content("e2"), content("e1", key="k2"), content("e1", b"{}")]

    addresses = {await harness.store.put(each) for each in several}

    assert len(addresses) == 4
    assert await harness.stored() == {each.name: each.body for each in several}


@pytest.mark.parametrize("identifier", ["..", "a/../b", "a?b#c", "鍵\u0001", "x" * 128, "\\."])
async def test_an_id_of_any_kind_can_be_stored(harness: Harness, identifier: str) -> None:
    address = await harness.store.put(content(identifier, key=identifier))

    assert len(await harness.stored()) == 1
    assert address.isascii()


async def test_what_cannot_be_stored_is_an_error_that_says_what_to_do_and_can_be_stored_later(
    harness: Harness,
) -> None:
    harness.break_down()
    with pytest.raises(ContentError, match=r"Create the container|Give the app's identity the role"):
        await harness.store.put(content("e1"))
    assert await harness.stored() == {}

    harness.mend()
    await harness.store.put(content("e1"))

    assert len(await harness.stored()) == 1
