"""The admin port and what its switches do to clients; and faults without a network, and their limits."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any, cast

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusError
from proton import Delivery

from outbox_relay.emulators.servicebus.acknowledgements import Acknowledgements, Outcome
from outbox_relay.emulators.servicebus.fault_plans import FaultPlan
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.partitions import partition_of
from outbox_relay.emulators.servicebus.role import Role
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


async def get(admin: aiohttp.ClientSession, path: str, status: int = 200) -> Any:
    async with admin.get(path) as answer:
        assert answer.status == status
        return await answer.json()


async def post(admin: aiohttp.ClientSession, path: str, body: Any, status: int = 200) -> Any:
    async with admin.post(path, json=body) as answer:
        assert answer.status == status
        return await answer.json()


async def test_counts_are_reported_for_entities_and_sessions(
    admin: aiohttp.ClientSession, client: ServiceBusClient
) -> None:
    async with client.get_topic_sender("events") as sender:
        for number in (1, 2, 3, 3):
            await sender.send_messages(
                ServiceBusMessage("x", message_id=str(number), session_id=f"s{number % 2}", subject="Named")
            )
    async with client.get_subscription_receiver("events", "all", session_id="s1") as receiver:
        [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.dead_letter_message(message)
        await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)

        assert await get(admin, "/health") == {"status": "healthy"}
        entities = await get(admin, "/admin/entities")
        sessions = await get(admin, "/admin/entities/events/Subscriptions/all/sessions")

    sent = {"accepted": 4, "duplicates_dropped": 1, "refused": 0}
    assert entities["events"] == sent | {"scheduled": 0, "status": "Active"}
    assert entities["events/Subscriptions/all"] == {
        "active": 1,
        "locked": 1,
        "deferred": 0,
        "scheduled": 0,
        "dead_letter": 1,
        "completed": 0,
        "status": "Active",
    }
    assert entities["events/Subscriptions/named"]["active"] == 3
    empty = {"deferred": 0, "scheduled": 0}
    assert sessions == {
        "s1": {"active": 0, "locked": 1, "session_locked": True, **empty},
        "s0": {"active": 1, "locked": 0, "session_locked": False, **empty},
    }


async def test_what_became_of_a_message_is_reported(
    admin: aiohttp.ClientSession, client: ServiceBusClient
) -> None:
    async with client.get_topic_sender("events") as sender:
        await sender.send_messages(ServiceBusMessage("x", message_id="done", session_id="s"))
        await sender.send_messages(ServiceBusMessage("x", message_id="waits", session_id="t"))
    async with client.get_subscription_receiver("events", "all", session_id="s") as receiver:
        [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.complete_message(message)

    path = "/admin/entities/events/Subscriptions/all/messages"
    answer = await get(admin, path)
    assert [(each["message_id"], each["fate"], each["deliveries"]) for each in answer["messages"]] == [
        ("waits", "waiting", 0),
        ("done", "completed", 1),
    ]
    assert (await get(admin, f"{path}?session=t"))["messages"] == answer["messages"][:1]
    assert (await get(admin, f"{path}?after={answer['change']}"))["messages"] == []
    assert (await get(admin, "/admin/entities"))["events/Subscriptions/all"]["completed"] == 1
    await get(admin, f"{path}?after=soon", status=400)


async def test_what_waits_is_reported_with_the_beginning_of_its_body(
    admin: aiohttp.ClientSession, client: ServiceBusClient
) -> None:
    # The 16 384th byte is the first of the two of a character.
    long = "x" + "é" * 10_000
    value = AmqpAnnotatedMessage(
        value_body=long, properties=AmqpMessageProperties(message_id="value", group_id="s")
    )
    async with client.get_topic_sender("events") as sender:
        for number in range(3):
            message = ServiceBusMessage(long if number == 1 else "short", message_id=str(number), session_id="s")
            message.application_properties = {"number": number}
            await sender.send_messages(message)
        await sender.send_messages(value)
        await sender.send_messages([ServiceBusMessage("x", session_id="t") for _ in range(20)])
    async with client.get_subscription_receiver("events", "all", session_id="s") as receiver:
        [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.complete_message(message)
        # Its delivery makes it no later than those behind it.
        [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.abandon_message(message)

    path = "/admin/entities/events/Subscriptions/all"
    found = (await get(admin, f"{path}/waiting"))["messages"]
    messages = [parse(b64decode(each["encoded"])) for each in found]
    assert len(found) == 20
    assert [each["message_id"] for each in found[:3]] == ["1", "2", "value"]
    assert [each.body.decode() for each in messages[:3]] == [long[:8192], "short", ""]
    assert [dict(each.application_properties) for each in messages[:2]] == [{"number": 1}, {"number": 2}]
    counts = (await get(admin, "/admin/entities"))["events/Subscriptions/all"]
    assert (counts["active"], counts["locked"], counts["completed"]) == (23, 0, 1)
    assert "nobody" in (await get(admin, "/admin/entities/nobody/waiting", 404))["error"]


async def test_a_message_can_be_made_one_that_is_refused(
    admin: aiohttp.ClientSession, client: ServiceBusClient
) -> None:
    condition = "com.microsoft:argument-error"
    await post(admin, "/admin/refuse", {"entity": "orders", "message_id": "bad", "condition": condition})
    batch = [ServiceBusMessage(each, message_id=each) for each in ("good", "bad")]
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError, match=condition):
            await sender.send_messages(batch)
        with pytest.raises(ServiceBusError, match=condition):
            await sender.send_messages(batch[1])
        await sender.send_messages(batch[0])
        async with admin.delete("/admin/refuse") as answer:
            assert answer.status == 200
        await sender.send_messages(batch)

    counts = (await get(admin, "/admin/entities"))["orders"]
    assert (counts["active"], counts["refused"]) == (3, 2)


@pytest.mark.parametrize("status", ["Disabled", "SendDisabled"])
async def test_an_entity_disabled_for_sending_ends_its_senders_and_takes_no_new_ones(
    admin: aiohttp.ClientSession, client: ServiceBusClient, status: str
) -> None:
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        await post(admin, "/admin/entities/orders/status", {"status": status})
        # The link is ended under way: the SDK raises the reason only when it has attached anew.
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("x"))
        await post(admin, "/admin/entities/orders/status", {"status": "Active"})
        await sender.send_messages(ServiceBusMessage("x"))


async def test_an_entity_disabled_for_receiving_still_takes_messages(
    admin: aiohttp.ClientSession, client: ServiceBusClient
) -> None:
    await post(admin, "/admin/entities/orders/status", {"status": "ReceiveDisabled"})
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityDisabledError):
        await client.get_queue_receiver("orders").__aenter__()


async def test_a_subscription_can_be_disabled_on_its_own(
    admin: aiohttp.ClientSession, client: ServiceBusClient
) -> None:
    await post(admin, "/admin/entities/events/Subscriptions/named/status", {"status": "Disabled"})

    with pytest.raises(MessagingEntityDisabledError):
        await client.get_subscription_receiver("events", "named").__aenter__()
    async with client.get_subscription_receiver("events", "dear"):
        pass


async def test_what_is_asked_wrongly_is_answered_with_the_reason(admin: aiohttp.ClientSession) -> None:
    assert "SendDisabled" in (await post(admin, "/admin/entities/orders/status", {"status": "x"}, 400))["error"]
    assert "message_id" in (await post(admin, "/admin/refuse", {"entity": "orders"}, 400))["error"]
    assert "GET /admin/nothing" in (await get(admin, "/admin/nothing", 404))["error"]
    nobody = {"entity": "nobody", "message_id": "1"}
    assert "nobody" in (await post(admin, "/admin/refuse", nobody, 404))["error"]
    assert "nobody" in (await post(admin, "/admin/entities/nobody/status", {"status": "Active"}, 404))["error"]
    assert "sessions" in (await get(admin, "/admin/entities/orders/sessions", 409))["error"]


# Faults without a network: what they match, and their limits; and delayed acknowledgements


def a_plan(**body: Any) -> FaultPlan:
    return FaultPlan.from_json({"kind": "server-busy", "entity": "t", **body})


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"kind": "server-busy"}, 1),
        ({"kind": "server-busy", "for_ms": 5}, None),
        ({"kind": "partition-unavailable"}, None),
        ({"kind": "end-on-transfer"}, 1),
        ({"kind": "end-on-transfer", "for_ms": 5}, None),
        ({"kind": "end-on-transfer", "message_id": "x"}, None),
        ({"kind": "end-on-transfer", "property": "harmful", "count": 2}, 2),
    ],
)
def test_a_fault_without_limits_is_applied_once_unless_it_is_of_a_partition_or_of_chosen_messages(
    body: dict[str, Any], count: int | None
) -> None:
    assert FaultPlan.from_json({"entity": "t", **body}).count == count


@pytest.mark.parametrize(
    ("path", "covered"),
    [("events", True), ("Events/Subscriptions/all", True), ("events2", False), ("event", False)],
)
def test_an_entity_covers_what_is_below_it(path: str, covered: bool) -> None:
    assert a_plan(entity="events").covers(path) is covered


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="role is not a known property"):
        a_plan(role="sender")
    assert FaultPlan.from_json({"kind": "detach-link", "entity": "t", "role": "receiver"}).role is Role.RECEIVER


@pytest.mark.parametrize("body", [{}, {"step": "later"}, {"step": "open", "how": "link"}])
def test_a_silent_handshake_needs_its_step(body: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"step|how"):
        FaultPlan.from_json({"kind": "silent-handshake", **body})


def test_the_partition_of_a_key_does_not_change() -> None:
    assert [partition_of(key, 16) for key in ("", "a", "key-7", "鍵")] == [0, 3, 15, 8]


async def test_acknowledgements_are_sent_in_order_however_late_each_is() -> None:
    given: list[int] = []
    done = asyncio.Event()

    def send(delivery: Delivery, outcome: Outcome) -> None:
        given.append(cast(int, delivery))
        if len(given) == 5:
            done.set()

    acknowledgements = Acknowledgements(send, lambda: None)
    for number, delay_ms in enumerate((0, 60, 0, 20, 0)):
        acknowledgements.send(cast(Delivery, number), Outcome(), delay_ms)
    assert given == [0]
    await asyncio.wait_for(done.wait(), WATCHDOG_S)

    assert given == [0, 1, 2, 3, 4]


async def test_acknowledgements_of_a_link_that_is_gone_are_not_sent() -> None:
    given: list[Delivery] = []
    acknowledgements = Acknowledgements(lambda delivery, outcome: given.append(delivery), lambda: None)
    acknowledgements.send(cast(Delivery, 1), Outcome(), 1)

    acknowledgements.cancel()
    await elapse(0.02)

    assert given == []
