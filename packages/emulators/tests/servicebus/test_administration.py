"""The management API with the real SDK: queues, topics and subscriptions made, changed and deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ApiVersion, AuthorizationRule, QueueProperties

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.plain_http import (
    blocking_management_client,
    management_client,
    management_connection_string,
    requested,
)
from packages.emulators.tests.servicebus.support import answered_as_missing
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

FOREVER = timedelta(days=10_675_199)


async def names(found: Any) -> list[str]:
    return [each.name async for each in found]


async def refusal(operation: Any) -> str:
    """The API's message when it refuses with 400."""
    with pytest.raises(HttpResponseError) as raised:
        await operation
    assert raised.value.status_code == 400
    assert "<Code>400</Code>" in str(raised.value)
    return str(raised.value.message)


@pytest.mark.parametrize("name", ["health", "health/x", "admin", "admin/x", "admin/entities", "admin/refuse"])
async def test_an_entity_may_have_the_name_of_a_path_of_the_emulator(
    server: ServiceBusServer, management: Any, name: str
) -> None:
    made = await management.create_queue(name)

    assert (made.name, (await management.get_queue(name)).name) == (name, name)
    # The SDK for Python encodes the slash, and .NET's does not.
    assert "<QueueDescription" in await requested(server, "GET", name)
    await management.delete_queue(name)


@pytest.mark.parametrize(
    ("megabytes", "partitioned"), [(1_500, False), (6_144, False), (81_920, False), (8_192, True)]
)
async def test_a_size_that_standard_lacks_is_refused(management: Any, megabytes: int, partitioned: bool) -> None:
    made = management.create_topic("new", max_size_in_megabytes=megabytes, enable_partitioning=partitioned)

    assert f"The value '{megabytes}' of the property 'MaxSizeInMegabytes'" in await refusal(made)
    queue = await management.create_queue("sized", max_size_in_megabytes=5_120)
    queue.max_size_in_megabytes = 6_144
    assert "1024, 2048, 3072, 4096, 5120" in await refusal(management.update_queue(queue))


async def test_sizes_of_partitioned_and_premium_entities_are_taken(entities: Entities, management: Any) -> None:
    spread = await management.create_queue("sized", max_size_in_megabytes=81_920, enable_partitioning=True)
    async with (
        ServiceBusServer(entities, edges=None, tier="premium") as premium,
        management_client(premium) as client,
    ):
        large: Any = await client.create_queue("sized", max_size_in_megabytes=81_920)

    assert spread.max_size_in_megabytes == large.max_size_in_megabytes == 81_920


async def test_the_entities_of_the_file_are_listed_and_described(management: Any) -> None:
    assert await names(management.list_queues()) == [
        "chats", "large", "orders", "quick", "quick-chats", "slow", "spread",
    ]  # fmt: skip
    assert await names(management.list_topics()) == ["events"]
    assert await names(management.list_subscriptions("events")) == ["all", "dear", "named"]
    topic = await management.get_topic("EVENTS")
    subscription = await management.get_subscription("events", "all")
    spread = await management.get_queue("spread")

    assert topic.requires_duplicate_detection is True
    assert topic.duplicate_detection_history_time_window == timedelta(minutes=5)
    assert (topic.enable_partitioning, spread.enable_partitioning) == (False, True)
    assert subscription.requires_session is True
    assert (topic.status, topic.availability_status) == ("Active", "Available")
    assert topic.max_message_size_in_kilobytes == 256
    assert topic.auto_delete_on_idle > FOREVER
    assert (await management.get_queue("quick")).lock_duration == timedelta(seconds=0.4)


async def test_the_namespace_is_described(management: Any, entities: Entities) -> None:
    found = await management.get_namespace_properties()

    assert (found.name, found.messaging_sku, found.namespace_type) == ("sbemulatorns", "Standard", "Messaging")
    began = datetime.now(UTC).replace(microsecond=0)
    async with ServiceBusServer(entities, tier="premium") as premium, management_client(premium) as client:
        later = await client.get_namespace_properties()
    assert later.messaging_sku == "Premium"
    assert later.created_at_utc is not None
    assert began <= later.created_at_utc <= datetime.now(UTC)


async def test_a_queue_is_made_as_described_and_serves_at_once(management: Any, client: ServiceBusClient) -> None:
    made = await management.create_queue(
        "team/letters",
        requires_session=True,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=2),
        lock_duration="PT1M30S",
        max_delivery_count=3,
        default_message_time_to_live=timedelta(days=2, hours=1),
        dead_lettering_on_message_expiration=True,
        user_metadata="täst <&>",
    )

    assert (made.name, made.requires_session, made.max_delivery_count) == ("team/letters", True, 3)
    found = await management.get_queue("team/letters")
    assert found == made
    assert found.lock_duration == timedelta(seconds=90)
    assert found.default_message_time_to_live == timedelta(days=2, hours=1)
    assert found.user_metadata == "täst <&>"
    async with client.get_queue_sender("team/letters") as sender:
        for number in ("1", "1", "2"):
            await sender.send_messages(ServiceBusMessage(number, message_id=number, session_id="s"))
    async with client.get_queue_receiver("team/letters", session_id="s") as receiver:
        assert [str(each) for each in await receiver.receive_messages(3, max_wait_time=WATCHDOG_S)] == ["1", "2"]


async def test_what_is_left_out_has_the_services_defaults(management: Any) -> None:
    queue = await management.create_queue("plain")
    await management.create_topic("wide")
    subscription = await management.create_subscription("wide", "one")

    assert (queue.lock_duration, queue.max_delivery_count) == (timedelta(minutes=1), 10)
    assert queue.default_message_time_to_live > FOREVER
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert (queue.requires_session, queue.requires_duplicate_detection) == (False, False)
    assert (subscription.max_delivery_count, subscription.enable_batched_operations) == (10, True)
    assert await names(management.list_rules("wide", "one")) == ["$Default"]


async def test_a_subscription_made_gets_what_is_sent_from_then_on(
    management: Any, client: ServiceBusClient
) -> None:
    async with client.get_topic_sender("events") as sender:
        await sender.send_messages(ServiceBusMessage("1"))
        await management.create_subscription("events", "late")
        await sender.send_messages(ServiceBusMessage("2"))
    async with client.get_subscription_receiver("events", "late") as receiver:
        assert [str(each) for each in await receiver.receive_messages(2, max_wait_time=1)] == ["2"]


async def test_a_name_that_is_taken_is_a_conflict(management: Any) -> None:
    for create in (
        management.create_queue("Orders"),
        management.create_topic("orders"),
        management.create_queue("events"),
        management.create_subscription("events", "ALL"),
    ):
        with pytest.raises(ResourceExistsError, match="SubCode=40900"):
            await create


async def test_what_does_not_exist_is_not_found(management: Any) -> None:
    for missing in (
        management.get_queue("nobody"),
        management.get_topic_runtime_properties("nobody"),
        management.get_subscription("events", "nobody"),
        management.get_subscription("nobody", "all"),
        management.get_rule("events", "all", "nobody"),
        management.delete_queue("nobody"),
        management.delete_subscription("events", "nobody"),
        management.delete_rule("events", "all", "nobody"),
        management.create_subscription("nobody", "all"),
        management.update_queue(QueueProperties("nobody", **dict.fromkeys(_QUEUE_FIELDS))),
    ):
        with pytest.raises(ResourceNotFoundError):
            await missing


_QUEUE_FIELDS = [
    "authorization_rules", "auto_delete_on_idle", "dead_lettering_on_message_expiration",
    "default_message_time_to_live", "duplicate_detection_history_time_window", "availability_status",
    "enable_batched_operations", "enable_express", "enable_partitioning", "lock_duration", "max_delivery_count",
    "max_size_in_megabytes", "requires_duplicate_detection", "requires_session", "status", "forward_to",
    "user_metadata", "forward_dead_lettered_messages_to", "max_message_size_in_kilobytes",
]  # fmt: skip


async def test_an_update_holds_for_what_comes(management: Any, client: ServiceBusClient) -> None:
    queue = await management.get_queue("orders")
    queue.max_delivery_count = 1
    queue.lock_duration = timedelta(seconds=20)
    queue.dead_lettering_on_message_expiration = False
    await management.update_queue(queue)
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        assert message.locked_until_utc is not None
        assert message.locked_until_utc < datetime.now(UTC) + timedelta(seconds=20)
        await receiver.abandon_message(message)
        async with asyncio.timeout(WATCHDOG_S):
            while not (await management.get_queue_runtime_properties("orders")).dead_letter_message_count:
                await look_again()

    assert dict(await management.get_queue("orders")) == dict(queue)


async def test_a_status_set_over_the_api_ends_links(management: Any, client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        queue = await management.get_queue("orders")
        await management.update_queue(queue, status="SendDisabled")
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))
    assert (await management.get_queue("orders")).status == "SendDisabled"


async def test_a_deleted_queue_is_gone_for_its_links_too(
    management: Any, client: ServiceBusClient, server: ServiceBusServer
) -> None:
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        await receiver.peek_messages()
        assert server.broker.connections.have_link_to("orders")
        await management.delete_queue("orders")

        assert not server.broker.connections.have_link_to("orders")
        # The link is ended under way: the SDK raises the reason only when it has attached anew.
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))
        with answered_as_missing("orders"):
            await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusError):
            await receiver.receive_messages(1, max_wait_time=1)
    await management.create_queue("orders")
    assert (await management.get_queue_runtime_properties("orders")).total_message_count == 0


async def test_a_deleted_topic_takes_its_subscriptions_with_it(management: Any, client: ServiceBusClient) -> None:
    async with client.get_subscription_receiver("events", "named") as receiver:
        await management.delete_topic("events")
        with pytest.raises(ServiceBusError):
            await receiver.receive_messages(1, max_wait_time=1)
    with answered_as_missing("events/Subscriptions/named"):
        await client.get_subscription_receiver("events", "named").__aenter__()


async def test_filters_that_cannot_be_evaluated_dead_letter_by_default(management: Any) -> None:
    await management.create_subscription("events", "strict")
    await management.create_subscription("events", "loose", dead_lettering_on_filter_evaluation_exceptions=False)

    found = {
        name: (await management.get_subscription("events", name)).dead_lettering_on_filter_evaluation_exceptions
        for name in ("named", "strict", "loose")
    }
    assert found == {"named": True, "strict": True, "loose": False}


async def test_a_deleted_subscription_leaves_its_topic(management: Any, client: ServiceBusClient) -> None:
    await management.delete_subscription("events", "named")

    async with client.get_topic_sender("events") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert await names(management.list_subscriptions("events")) == ["all", "dear"]


@pytest.mark.parametrize("field", ["requires_session", "requires_duplicate_detection", "enable_partitioning"])
async def test_what_is_set_on_creation_cannot_be_changed(management: Any, field: str) -> None:
    queue = await management.get_queue("orders")

    reason = await refusal(management.update_queue(queue, **{field: True}))

    assert "cannot be changed once the entity exists" in reason
    assert await management.get_queue("orders") == queue


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lock_duration": timedelta(minutes=6)}, ["LockDuration", "from PT5S to PT5M"]),
        ({"lock_duration": "P1M"}, ["'P1M'", "LockDuration", "ISO 8601"]),
        ({"max_delivery_count": 0}, ["MaxDeliveryCount", "from 1"]),
        ({"duplicate_detection_history_time_window": timedelta(days=8)}, ["History", "to P7D"]),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, ["AutoDeleteOnIdle", "from PT5M"]),
        ({"default_message_time_to_live": timedelta(0)}, ["DefaultMessageTimeToLive", "from PT1S"]),
        ({"user_metadata": "x" * 1025}, ["UserMetadata", "1024 characters"]),
        ({"max_message_size_in_kilobytes": 2048}, ["MaxMessageSizeInKilobytes", "Premium"]),
        ({"forward_to": "no"}, ["SubCode=40400", "destination entity 'no' does not exist"]),
        ({"forward_dead_lettered_messages_to": "no"}, ["SubCode=40400", "destination entity 'no'"]),
        ({"forward_to": "events/Subscriptions/all"}, ["SubCode=40400", "events/Subscriptions/all"]),
        ({"status": "Renaming"}, ["Status", "Renaming"]),
        (
            {"authorization_rules": [AuthorizationRule(type="SharedAccessAuthorizationRule", key_name="k")]},
            ["AuthorizationRules", "'k'", "at least one right"],
        ),
    ],
    ids=lambda value: next(iter(value)),
)
async def test_a_value_that_is_wrong_or_not_supported_is_refused_with_its_property(
    management: Any, options: dict[str, Any], words: list[str]
) -> None:
    reason = await refusal(management.create_queue("new", **options))

    assert all(word in reason for word in words), reason
    with pytest.raises(ResourceNotFoundError):
        await management.get_queue("new")


@pytest.mark.parametrize("name", ["-a", "a b", "a" * 261, "a@b"])
async def test_a_name_that_is_not_valid_is_refused(management: Any, name: str) -> None:
    assert "is no valid name" in await refusal(management.create_queue(name))
    assert "is no valid name" in await refusal(management.create_subscription("events", name))


async def test_a_larger_message_can_be_allowed_on_premium(entities: Entities) -> None:
    async with (
        ServiceBusServer(entities, tier="premium") as server,
        management_client(server) as administration,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        management: Any = administration
        assert (await management.get_queue("large")).max_message_size_in_kilobytes == 2048
        made = await management.create_queue("new", max_message_size_in_kilobytes=3072)
        assert made.max_message_size_in_kilobytes == 3072
        async with client.get_queue_sender("new") as sender:
            await sender.send_messages(ServiceBusMessage("x" * 2_000_000))
        assert (await management.get_queue_runtime_properties("new")).size_in_bytes > 2_000_000


async def test_runtime_properties_have_counts_sizes_and_times(management: Any, client: ServiceBusClient) -> None:
    named = ("events", "named")
    before = await management.get_subscription_runtime_properties(*named)
    assert before.accessed_at_utc.year == 1
    async with client.get_topic_sender("events") as sender:
        for number in range(4):
            await sender.send_messages(ServiceBusMessage("x" * 100, message_id=str(number), subject="Named"))
        await sender.schedule_messages(ServiceBusMessage("x"), datetime.now(UTC) + timedelta(hours=1))
    async with client.get_subscription_receiver("events", "named") as receiver:
        first, second, _ = await receiver.receive_messages(3, max_wait_time=WATCHDOG_S)
        await receiver.dead_letter_message(first)
        await receiver.complete_message(second)
        async with asyncio.timeout(WATCHDOG_S):
            while (
                await management.get_subscription_runtime_properties("events", "named")
            ).total_message_count > 3:
                await look_again()

    found = await management.get_subscription_runtime_properties(*named)
    topic = await management.get_topic_runtime_properties("events")
    assert (found.active_message_count, found.dead_letter_message_count, found.total_message_count) == (2, 1, 3)
    assert (found.transfer_message_count, found.transfer_dead_letter_message_count) == (0, 0)
    assert (topic.subscription_count, topic.scheduled_message_count) == (3, 1)
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (2, 1)
    assert 300 < topic.size_in_bytes < 2_000
    assert found.created_at_utc <= found.accessed_at_utc <= datetime.now(UTC)
    listed = [each async for each in management.list_subscriptions_runtime_properties("events")]
    assert [each.total_message_count for each in listed] == [4, 0, 3]


async def test_long_lists_come_in_pages(management: Any) -> None:
    for number in range(7):
        await management.create_topic(f"t{number}")
    wanted = ["events", *(f"t{number}" for number in range(7))]

    pages = management.list_topics(max_page_size=3).by_page()
    sizes = [len([each async for each in page]) async for page in pages]

    assert sizes == [3, 3, 2]
    assert await names(management.list_topics(max_page_size=3)) == wanted
    assert await names(management.list_topics(start_index=6)) == wanted[6:]
    assert "$skip" in await refusal(_first(management.list_topics(start_index=-1)))


async def _first(found: Any) -> Any:
    return await found.__anext__()


async def test_a_wrong_key_or_none_is_refused(server: ServiceBusServer) -> None:
    wrong = management_connection_string(server, key="AAAA")
    async with management_client(server, connection_string=wrong) as client:
        with pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
            await client.get_queue("orders")


async def test_older_versions_of_the_api_do_not_know_newer_properties(server: ServiceBusServer) -> None:
    async with management_client(server, api_version=ApiVersion.V2017_04) as management:
        queue = await management.get_queue("orders")
        assert queue.max_message_size_in_kilobytes is None
        await management.update_queue(queue, max_delivery_count=7)
        assert (await management.get_topic_runtime_properties("events")).sql_filter_count is None
        reason = await refusal(management.create_queue("new", max_message_size_in_kilobytes=2048))
        assert "not known to the API version '2017-04'" in reason


async def test_the_blocking_client_serves_as_well(server: ServiceBusServer) -> None:
    def use() -> list[str]:
        with blocking_management_client(server) as client:
            client.create_topic("wide")
            client.create_subscription("wide", "one")
            client.update_subscription("wide", client.get_subscription("wide", "one"), max_delivery_count=2)
            assert client.get_subscription("wide", "one").max_delivery_count == 2
            return [topic.name for topic in client.list_topics()]

    assert await asyncio.to_thread(use) == ["events", "wide"]
