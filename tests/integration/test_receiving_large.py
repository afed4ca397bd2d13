"""Large events at a consumer: their bodies come from Blob Storage, on Azurite, before the handler is called."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.storage.blob.aio import ContainerClient

from outbox_relay import inbox
from tests.support.azurite import Container
from tests.support.inbox import QUEUE, QUICK, Broker, broker, message
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.xdist_group("azurite")]

BODY = b'{"action": "Counted", "text": "%s"}' % ("鍵".encode() * 100_000)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker(tmp_path, MaxDeliveryCount=3) as made:
        yield made


@pytest.fixture
async def container(blobs: Container) -> AsyncIterator[ContainerClient]:
    async with blobs.client() as client:
        yield client


async def claim(container: ContainerClient, number: int, **properties: Any) -> Any:
    """A message whose body is in the container, as the relay sends it."""
    name = f"{hashlib.sha256(BODY).hexdigest()}/{number}"
    await container.upload_blob(name, BODY, overwrite=True)
    return message(
        "k",
        number,
        b"",
        **{
            "dataRef": container.get_blob_client(name).url,
            "dataSha256": hashlib.sha256(BODY).hexdigest(),
            "dataLength": len(BODY),
            **properties,
        },
    )


class Handled:
    """A handler that notes what it is given."""

    def __init__(self) -> None:
        self.messages: list[inbox.Message] = []

    def __call__(self, message: inbox.Message) -> None:
        self.messages.append(message)

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.messages]


async def test_the_handler_gets_a_large_event_whole_and_in_its_place(
    queue: Broker, container: ContainerClient
) -> None:
    handled = Handled()
    queue.send(message("k", 1), await claim(container, 2), message("k", 3))

    async with queue.receiving(handled, contents=inbox.BlobContents(container)):
        await queue.until_empty()

    assert handled.ids == ["k-1", "k-2", "k-3"]
    assert handled.messages[1].body == BODY
    assert handled.messages[1].json()["action"] == "Counted"
    assert handled.messages[1].sequence == 2


async def test_a_receiver_that_cannot_fetch_dead_letters_large_events_and_can_handle_them_later(
    queue: Broker, container: ContainerClient
) -> None:
    handled = Handled()
    queue.send(message("k", 1), await claim(container, 2), message("k", 3))

    async with queue.receiving(handled):
        await queue.until_empty()
    dead = queue.dead()
    options: dict[str, Any] = {"contents": inbox.BlobContents(container), **QUICK}
    report = await inbox.DeadLetterReceiver(queue.client, handled, queue=QUEUE, **options).run()

    assert dead == ["k-2"]
    assert (report.handled, report.remainder) == (1, [])
    assert handled.ids == ["k-1", "k-3", "k-2"]
    assert handled.messages[-1].body == BODY


async def test_a_content_that_is_not_what_the_message_names_is_dead_lettered_with_the_reason(
    queue: Broker, container: ContainerClient
) -> None:
    handled = Handled()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dataSha256": "0" * 64}, "content-differs"),
        ({"dataLength": 1}, "content-differs"),
        ({"dataRef": f"{container.url}/missing"}, "content-missing"),
        ({"dataRef": "https://elsewhere.example/large/1"}, "content-elsewhere"),
        ({"dataRef": f"https://elsewhere.example{urlsplit(container.url).path}/1"}, "content-elsewhere"),
        ({"dataRef": f"{container.url}/../other/1"}, "content-elsewhere"),
        ({"dataRef": f"{container.url}/%2E%2E/other/1"}, "content-elsewhere"),
        ({"dataRef": f"{container.url}-other/1"}, "content-elsewhere"),
        ({"dataRef": 7}, "content-elsewhere"),
        ({"dataRef": "http://["}, "content-elsewhere"),
        ({"dataRef": f"{container.url}/..%5cother%5ca"}, "content-elsewhere"),
        ({"dataRef": f"{container.url}/{'x' * 1025}"}, "content-elsewhere"),
        ({"dataLength": "many"}, "content-differs"),
        ({"dataLength": True}, "content-differs"),
        ({"dataLength": -1}, "content-differs"),
        ({"dataSha256": 5}, "content-differs"),
    ]
    for number, (properties, _) in enumerate(wrong):
        queue.send(await claim(container, number, **properties))
    queue.send(message("k", 100))

    async with queue.receiving(handled, contents=inbox.BlobContents(container)):
        await queue.until_empty()

    dead = {each.message_id: each.dead_letter_reason for each in await queue.dead_letters()}
    assert dead == {f"k-{number}": reason for number, (_, reason) in enumerate(wrong)}
    assert handled.ids == ["k-100"]


@pytest.fixture
async def once(container: ContainerClient, blobs: Container) -> AsyncIterator[ContainerClient]:
    """A client of the container that repeats nothing."""
    name = container.container_name
    async with ContainerClient.from_connection_string(blobs.connection_string, name, retry_total=0) as client:
        yield client


OUTAGE = 2 * 3
"""Twice as many attempts as the deliveries after which the queue dead-letters a message."""


@pytest.mark.parametrize("fault", [403, 404, 503, "cut"])
@pytest.mark.parametrize("on_poison", ["skip", "park"])
async def test_while_contents_are_away_nothing_is_dead_lettered_parked_or_overtaken(
    queue: Broker,
    container: ContainerClient,
    once: ContainerClient,
    blobs: Container,
    fault: int | str,
    on_poison: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled, store = Handled(), inbox.MemoryStore()
    queue.send(message("k", 1), await claim(container, 2), message("k", 3), message("l", 1))
    blobs.faults = [*[fault] * OUTAGE, "pass"]

    options: dict[str, Any] = {"contents": inbox.BlobContents(once), "attempts": 2}
    if on_poison == "park":
        options |= {"on_poison": "park", "parking": store}
    with caplog.at_level(logging.WARNING, "outbox_relay.inbox"):
        async with queue.receiving(handled, **{**options, "sessions": 2}):
            await queue.until_empty()

    assert [each for each in handled.ids if each != "l-1"] == ["k-1", "k-2", "k-3"]
    assert handled.messages[handled.ids.index("k-2")].delivery_count == 0
    assert queue.dead() == []
    assert await store.keys() == []
    loud = [each for each in caplog.records if "k-2" in each.getMessage() and each.levelno == logging.ERROR]
    assert len(loud) == (OUTAGE if fault in (403, 404) else 0)
    assert ("Storage Blob Data Reader" in caplog.text) == (fault == 403)
    assert once.url not in caplog.text


async def test_a_content_that_does_not_come_in_time_is_waited_for(
    queue: Broker, container: ContainerClient, once: ContainerClient, blobs: Container
) -> None:
    handled = Handled()
    queue.send(await claim(container, 1), message("k", 2))
    blobs.faults = ["hang", "pass"]

    async with queue.receiving(handled, contents=inbox.BlobContents(once, timeout_s=2.0)):
        await queue.until_empty()

    assert handled.ids == ["k-1", "k-2"]
    assert queue.dead() == []


async def test_a_released_key_waits_for_a_content_and_loses_no_attempt(
    queue: Broker, container: ContainerClient, once: ContainerClient, blobs: Container
) -> None:
    store, poison, handled = inbox.MemoryStore(), {"k-1"}, asyncio.Event()
    bodies: list[bytes] = []

    async def handle(received: inbox.Message) -> None:
        if received.id in poison:
            raise inbox.DeadLetter("unknown-title")
        bodies.append(received.body)
        if received.id == "k-3":
            handled.set()

    queue.send(message("k", 1, b"1"), await claim(container, 2), message("k", 3, b"3"))
    options = {"on_poison": "park", "parking": store, "attempts": 2, "released_s": 0.05, "retry_max_s": 0.05}
    async with queue.receiving(handle, contents=inbox.BlobContents(once), **options), asyncio.timeout(WATCHDOG_S):
        await queue.until_empty()
        blobs.faults = [*[503] * OUTAGE, "pass"]
        poison.clear()
        await store.release(QUEUE, "k")
        await handled.wait()

    assert bodies == [b"1", BODY, b"3"]
    assert queue.dead() == []


async def test_no_more_of_a_blob_is_read_than_its_message_says(
    queue: Broker, container: ContainerClient, blobs: Container
) -> None:
    handled = Handled()
    large = await claim(container, 1, dataLength=1000)
    await container.upload_blob(
        large.properties["dataRef"].partition(f"{container.url}/")[2], b"x" * 30_000_000, overwrite=True
    )
    queue.send(large, message("k", 2))
    blobs.answered = 0

    async with queue.receiving(handled, contents=inbox.BlobContents(container)):
        await queue.until_empty()

    assert [each.dead_letter_reason for each in await queue.dead_letters()] == ["content-differs"]
    assert blobs.answered == 1001
    assert handled.ids == ["k-2"]


@pytest.mark.parametrize("body", [b"", b"x", b"x" * (33 * 1024 * 1024)], ids=["empty", "one byte", "in chunks"])
async def test_a_content_of_any_length_comes_whole(container: ContainerClient, body: bytes) -> None:
    await container.upload_blob("large", body)

    found = await inbox.BlobContents(container).fetch(f"{container.url}/large", len(body))

    assert found == body
