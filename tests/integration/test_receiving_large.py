"""Large events at a consumer: their bodies come from Blob Storage, on Azurite, before the handler is called."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.storage.blob.aio import ContainerClient

import inbox
from tests.support.azurite import Container
from tests.support.inbox import QUEUE, QUICK, Broker, broker, message

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("azurite")]

BODY = b'{"action": "Counted", "text": "%s"}' % ("鍵".encode() * 100_000)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker(tmp_path) as made:
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
        ({"dataRef": 7}, "content-not-fetched"),
    ]
    for number, (properties, _) in enumerate(wrong):
        queue.send(await claim(container, number, **properties))
    queue.send(message("k", 100))

    async with queue.receiving(handled, contents=inbox.BlobContents(container)):
        await queue.until_empty()

    dead = {each.message_id: each.dead_letter_reason for each in await queue.dead_letters()}
    assert dead == {f"k-{number}": reason for number, (_, reason) in enumerate(wrong)}
    assert handled.ids == ["k-100"]


@pytest.mark.parametrize("fault", [403, "hang"])
async def test_while_a_content_cannot_be_had_its_session_waits(
    queue: Broker, container: ContainerClient, blobs: Container, fault: int | str
) -> None:
    handled = Handled()
    queue.send(await claim(container, 1), message("k", 2))
    blobs.faults = [fault, "pass"]

    once = ContainerClient.from_connection_string(blobs.connection_string, container.container_name, retry_total=0)
    async with once, queue.receiving(handled, contents=inbox.BlobContents(once, timeout_s=0.3)):
        await queue.until_empty()

    assert handled.ids == ["k-1", "k-2"]
    assert handled.messages[0].delivery_count == 1
    assert queue.dead() == []
