"""The console's reading of a topic, through the real SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from proton import char

from local.console.topic import EmulatorTopic
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import DAY_MS
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.console.model import Arrival
from outbox_relay.operator.console.servicebus import PEEKED, ServiceBusTopic
from relay.config.settings import Settings
from relay.core.errors import ServiceError
from tests.support.broker import TurnableClock
from tests.support.dead_letters import Topic, event
from tests.support.watchdog import WATCHDOG_S

TOPIC, SUBSCRIPTION = "domain-events", "all"


def settings_of(servicebus: ServiceBusServer) -> Settings:
    return Settings.from_environment(
        {
            "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5",
            "SERVICEBUS": servicebus.connection_string,
        }
    )


@pytest.fixture
async def topic(servicebus: ServiceBusServer) -> AsyncIterator[ServiceBusTopic]:
    opened = ServiceBusTopic(
        settings_of(servicebus), {"SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}"}
    )
    yield opened
    await opened.close()


async def publish(client: ServiceBusClient, key: str, *identifiers: str) -> None:
    async with client.get_topic_sender(TOPIC) as sender:
        await sender.send_messages(
            [ServiceBusMessage("{}", message_id=each, session_id=key, subject="Renamed") for each in identifiers]
        )


async def dead_letter(client: ServiceBusClient, key: str, *reasons: str) -> None:
    """Dead-letter the first messages of a session, each for a reason."""
    left = list(reasons)
    async with client.get_subscription_receiver(TOPIC, SUBSCRIPTION, session_id=key) as receiver:
        while left:
            for message in await receiver.receive_messages(len(left), max_wait_time=WATCHDOG_S):
                await receiver.dead_letter_message(
                    message, reason=left.pop(0), error_description="as the test says"
                )


async def test_counts_and_dead_letters_by_reason_are_read_while_a_receiver_holds_the_session(
    servicebus: ServiceBusServer, topic: ServiceBusTopic
) -> None:
    async with ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        await publish(client, "k", "a", "b", "c", "d")
        await dead_letter(client, "k", "schema", "gone", "schema")
        async with client.get_subscription_receiver(TOPIC, SUBSCRIPTION, session_id="k") as receiver:
            (held,) = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
            for _ in range(2):
                counts = {each.name: (each.active, each.dead_lettered) for each in await topic.subscriptions()}
                groups = await topic.dead_letters(SUBSCRIPTION)
            await receiver.complete_message(held)

        assert counts[SUBSCRIPTION] == (1, 3)
        assert [(each.reason, each.count) for each in groups] == [("schema", 2), ("gone", 1)]
        example = groups[0].examples[0]
        assert (example.message_id, example.partition_key, example.subject) == ("a", "k", "Renamed")
        assert example.enqueued_at is not None
        assert await topic.deliveries("other", ["a"]) == []
        found = await topic.deliveries("k", ["a", "b", "c", "d"])
        assert [(each.message_id, each.arrival, each.reason) for each in found] == [
            ("a", Arrival.DEAD_LETTERED, "schema"),
            ("b", Arrival.DEAD_LETTERED, "gone"),
            ("c", Arrival.DEAD_LETTERED, "schema"),
        ]


async def test_dead_letters_that_the_sdk_cannot_decode_are_read(
    servicebus: ServiceBusServer, topic: ServiceBusTopic
) -> None:
    dead = Topic(servicebus)
    dead.publish(event("k", 1, letter=char("é")), event("k", 2))
    dead.dead_letter(SUBSCRIPTION, "k", count=2, reason="schema")

    (group,) = await topic.dead_letters(SUBSCRIPTION)

    assert [(each.message_id, each.partition_key) for each in group.examples] == [("k-1", "k"), ("k-2", "k")]


async def test_content_is_kept_only_where_it_may_be_shown_and_only_of_the_examples(
    servicebus: ServiceBusServer, topic: ServiceBusTopic
) -> None:
    dead = Topic(servicebus)
    dead.publish(
        *(event("k", number, body=b"\xff" if number == 2 else b'{"city": "Oslo"}') for number in range(1, 13))
    )
    dead.dead_letter(SUBSCRIPTION, "k", count=12, reason="schema")
    address = f"http://127.0.0.1:{servicebus.admin_port}"
    environment = {"SERVICEBUS_ADMIN": address, "CONSOLE_SHOW_DATA": "true"}
    showing = ServiceBusTopic(settings_of(servicebus), environment)
    try:
        (hidden,) = await topic.dead_letters(SUBSCRIPTION)
        (group,) = await showing.dead_letters(SUBSCRIPTION)
        kept = [letter.content is not None for letter, _ in showing._peeked[SUBSCRIPTION]]
    finally:
        await showing.close()

    assert [each.content for each in hidden.examples] == [None] * 10
    contents = [each.content for each in group.examples]
    assert [each.body for each in contents if each][:2] == ['{"city": "Oslo"}', "base64:/w=="]
    assert group.count == 12
    assert kept == [True] * 10 + [False] * 2
    assert contents[0] is not None
    properties = json.loads(contents[0].properties)
    assert properties["properties"]["messageId"] == "k-1"
    assert "DeadLetterReason" not in properties["applicationProperties"]


async def test_no_more_dead_letters_are_peeked_than_the_bound(
    servicebus: ServiceBusServer, topic: ServiceBusTopic
) -> None:
    async with ServiceBusClient.from_connection_string(servicebus.connection_string) as client:
        await publish(client, "k", *map(str, range(PEEKED + 10)))
        await dead_letter(client, "k", *["schema"] * (PEEKED + 10))

    (group,) = await topic.dead_letters(SUBSCRIPTION)

    assert (group.count, len(group.examples), group.examples[0].message_id) == (PEEKED, 10, "0")


async def test_a_message_is_one_that_came_again_whichever_of_them_changes_last(entities: Entities) -> None:
    clock = TurnableClock()
    async with ServiceBusServer(entities, clock=clock) as server:
        dead, of_azure = Topic(server), ServiceBusTopic(settings_of(server), {})
        topic = EmulatorTopic(server.admin_endpoint, of_azure, TOPIC, is_queue=False)

        async def came_again() -> dict[str, bool]:
            topic._read_at = float("-inf")  # what has changed since is read
            found = await topic.deliveries("k", ["k-1", "k-2", "k-3"])
            return {each.message_id: each.again for each in found if each.subscription == SUBSCRIPTION}

        try:
            dead.publish(event("k", 1), event("k", 2), event("k", 3))
            dead.dead_letter(SUBSCRIPTION, "k")
            first = await came_again()
            clock.ahead_ms = DAY_MS  # beyond the window of duplicate detection
            dead.publish(event("k", 1), event("k", 2))
            second = await came_again()
            dead.complete(SUBSCRIPTION, "k")
            third = await came_again()
        finally:
            await topic.close()

    assert first == {"k-1": False, "k-2": False, "k-3": False}
    assert second == third == {"k-1": True, "k-2": True, "k-3": False}


async def test_without_the_right_to_manage_the_counts_are_missing_and_say_why(
    servicebus: ServiceBusServer,
) -> None:
    wrong = servicebus.connection_string.replace("SharedAccessKey=", "SharedAccessKey=AAAA")
    topic = ServiceBusTopic(settings_of(servicebus), {"SERVICEBUS_ADMIN": wrong})
    try:
        with pytest.raises(ServiceError, match="Azure Service Bus Data Owner"):
            await topic.subscriptions()
        assert await topic.dead_letters(SUBSCRIPTION) == []
    finally:
        await topic.close()


async def test_a_topic_that_is_disabled_is_an_obstacle_with_its_remedy(
    servicebus: ServiceBusServer, topic: ServiceBusTopic
) -> None:
    assert await topic.obstacles() == []
    url = f"http://127.0.0.1:{servicebus.admin_port}/admin/entities/{TOPIC}/status"
    async with aiohttp.ClientSession(raise_for_status=True) as http, http.post(url, json={"status": "Disabled"}):
        pass

    [found] = await topic.obstacles()

    assert (found.what, found.remedy) == (f"the topic '{TOPIC}' is Disabled", "Set its status to Active.")
