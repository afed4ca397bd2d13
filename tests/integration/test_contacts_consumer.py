"""The consumer on the local Service Bus: repetitions, failures and unreadable messages."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient

from outbox_relay import inbox
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.inbox.event_loop import end_tasks
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle
from samples.contacts.consumer.receiving import handle_message
from samples.contacts.settings import open_servicebus
from tests.integration.conftest import ROOT
from tests.support.broker import admin
from tests.support.dead_letters import Topic
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

TOPIC, SUBSCRIPTION = "domain-events", "all"
NAME = {"firstName": "John", "lastName": "Doe"}
COMPANY = {"companyName": "Contoso"}

Handle = Callable[[inbox.Message], object]


def created(contact: str) -> dict[str, Any]:
    content = {"name": NAME, "description": "", "email": "1@contoso.com", "company": COMPANY}
    return {"action": "ContactCreatedEvent", "contactId": contact, "version": 1, **content}


def email_updated(contact: str, version: int) -> dict[str, Any]:
    return {
        "action": "ContactEmailUpdatedEvent",
        "contactId": contact,
        "version": version,
        "email": f"{version}@contoso.com",
    }


@pytest.fixture
async def client(servicebus: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    async with open_servicebus({"SERVICEBUS": servicebus.connection_string}) as connected:
        yield connected


class Publisher:
    """Publishes events as the relay would, each as its own message."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._count = 0

    async def __call__(self, *bodies: Any) -> None:
        async with self._client.get_topic_sender(TOPIC) as sender:
            for body in bodies:
                self._count += 1
                session = body["contactId"] if isinstance(body, dict) else "c1"
                text = json.dumps(body) if isinstance(body, dict) else body
                message = ServiceBusMessage(text, message_id=str(self._count), session_id=session)
                if isinstance(body, dict):
                    message.application_properties = {"sequence": body["version"]}
                await sender.send_messages(message)


@pytest.fixture
def publish(client: ServiceBusClient) -> Publisher:
    return Publisher(client)


@asynccontextmanager
async def receiving(client: ServiceBusClient, handler: Handle) -> AsyncIterator[None]:
    """Run the receiver during the block."""
    receiver = inbox.Receiver(client, handler, topic=TOPIC, subscription=SUBSCRIPTION, sessions=4, retry_s=0.0)
    task = asyncio.create_task(receiver.run())
    try:
        yield
    finally:
        await end_tasks([task])


async def until_empty(server: ServiceBusServer) -> None:
    """Poll the broker until every message of the subscription is settled."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            counts = (await admin(server.admin_port, "GET", "entities"))[f"{TOPIC}/Subscriptions/{SUBSCRIPTION}"]
            if counts["active"] == counts["locked"] == 0:
                return
            await asyncio.sleep(0.05)


async def test_the_directory_is_built_in_order_from_many_sessions(
    client: ServiceBusClient, servicebus: ServiceBusServer, publish: Publisher
) -> None:
    contacts = [f"c{number}" for number in range(6)]
    await publish(
        *map(created, contacts),
        *(email_updated(contact, version) for version in range(2, 6) for contact in contacts),
    )
    seen: dict[str, list[int]] = {}

    with Directory() as directory:

        def note(message: inbox.Message) -> None:
            seen.setdefault(message.key, []).append(message.json()["version"])
            handle_message(message, directory)

        async with receiving(client, note):
            await until_empty(servicebus)

        assert [contact["email"] for contact in directory.contacts()] == ["5@contoso.com"] * 6
    assert seen == {contact: [1, 2, 3, 4, 5] for contact in contacts}


async def test_a_message_handled_but_not_completed_is_redelivered_and_changes_nothing(
    client: ServiceBusClient, servicebus: ServiceBusServer, publish: Publisher
) -> None:
    await publish(created("c1"), email_updated("c1", 2))
    applied: list[bool] = []

    with Directory() as directory:

        def handle_body(body: bytes) -> None:
            applied.append(handle(body, directory))

        receiver = client.get_subscription_receiver(
            TOPIC, SUBSCRIPTION, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WATCHDOG_S, prefetch_count=10
        )
        async with receiver:
            while len(applied) < 2:
                for message in await receiver.receive_messages(max_message_count=2, max_wait_time=WATCHDOG_S):
                    handle_body(b"".join(message.body))
        async with receiving(client, lambda message: handle_body(message.body)):
            await until_empty(servicebus)

        assert applied == [True, True, False, False]
        contact = directory.contact("c1")
        assert contact is not None
        assert contact["email"] == "2@contoso.com"


async def test_events_published_again_after_later_ones_change_nothing(
    client: ServiceBusClient, servicebus: ServiceBusServer, publish: Publisher
) -> None:
    events = [created("c1"), email_updated("c1", 2), email_updated("c1", 3)]
    applied: list[bool] = []

    with Directory() as directory:
        await publish(*events, *events)
        async with receiving(client, lambda message: applied.append(handle(message.body, directory))):
            await until_empty(servicebus)

        contact = directory.contact("c1")
    assert applied == [True] * 3 + [False] * 3
    assert contact is not None
    assert contact["email"] == "3@contoso.com"


async def test_a_message_whose_handler_fails_is_redelivered_before_later_ones(
    client: ServiceBusClient, servicebus: ServiceBusServer, publish: Publisher
) -> None:
    await publish(created("c1"), *(email_updated("c1", version) for version in range(2, 9)))
    tried: list[int] = []

    def fail_at_first(message: inbox.Message) -> None:
        version = message.json()["version"]
        tried.append(version)
        if version == 3 and tried.count(3) < 3:
            raise OSError("the disk is full")

    async with receiving(client, fail_at_first):
        await until_empty(servicebus)

    assert tried == [1, 2, 3, 3, 3, 4, 5, 6, 7, 8]


async def test_an_unreadable_message_is_dead_lettered_and_the_others_are_handled(
    client: ServiceBusClient, servicebus: ServiceBusServer, publish: Publisher
) -> None:
    await publish(created("c1"), "no JSON", email_updated("c1", 2))

    with Directory() as directory:
        async with receiving(client, lambda message: handle_message(message, directory)):
            await until_empty(servicebus)
        contact = directory.contact("c1")

    dead_letters = client.get_subscription_receiver(
        TOPIC, SUBSCRIPTION, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=WATCHDOG_S
    )
    async with dead_letters:
        (dead,) = await dead_letters.receive_messages(max_message_count=5, max_wait_time=WATCHDOG_S)
    assert (dead.dead_letter_reason, b"".join(dead.body)) == ("unreadable", b"no JSON")
    assert "not JSON" in str(dead.dead_letter_error_description)
    assert contact is not None
    assert contact["email"] == "2@contoso.com"


async def test_the_command_writes_a_file_and_stops_on_sigterm(
    servicebus: ServiceBusServer, publish: Publisher, tmp_path: Path
) -> None:
    await publish(created("c1"), email_updated("c1", 4), email_updated("c1", 3))
    path = tmp_path / "directory.sqlite"
    command = (sys.executable, "-m", "samples.contacts.consumer")
    environment = {**os.environ, "SERVICEBUS": servicebus.connection_string}
    receiver = await asyncio.create_subprocess_exec(
        *command, "--directory", str(path), cwd=ROOT, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until_empty(servicebus)
        receiver.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(receiver.wait(), WATCHDOG_S) == 0
    finally:
        if receiver.returncode is None:
            receiver.kill()
    shown = []
    for what in ("show", "missing"):
        show = await asyncio.create_subprocess_exec(
            *command, what, "--directory", str(path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(show.communicate(), WATCHDOG_S)
        shown += [json.loads(line) for line in output.decode().splitlines()]

    contact, missing = shown
    assert contact["email"] == "4@contoso.com"
    assert missing == {"contactId": "c1", "sequence": 2}


async def test_the_command_handles_dead_letters_and_says_what_is_left(
    servicebus: ServiceBusServer, publish: Publisher, tmp_path: Path
) -> None:
    await publish(created("c1"), "no event", email_updated("c1", 2))
    topic = Topic(servicebus)
    topic.dead_letter(SUBSCRIPTION, "c1", count=3)
    path = tmp_path / "directory.sqlite"

    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "samples.contacts.consumer", "dead-letters", "--directory", str(path)),
        cwd=ROOT,
        env={**os.environ, "SERVICEBUS": servicebus.connection_string},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await asyncio.wait_for(command.communicate(), WATCHDOG_S)

    report = json.loads(output)
    assert (command.returncode, report["handled"]) == (1, 2)
    assert report["remainder"][0]["why"].startswith("unreadable")
    assert topic.dead(SUBSCRIPTION) == ["2"]
    with Directory(path) as directory:
        assert [contact["email"] for contact in directory.contacts()] == ["2@contoso.com"]
