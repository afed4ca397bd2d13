"""The contract of a session's receiver, as `smoke` uses it: the one in memory, and the real SDK's."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError, SessionLockLostError

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.cli.servicebus_checks import names_missing_entity
from relay.servicebus.refusals import amqp_condition
from tests.support.broker import inject
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.receivers import Message, Receiver, Subscription, refusals


class Harness(ABC):
    """A subscription with one session."""

    @abstractmethod
    async def publish(self, *ids: str) -> None:
        """Publish messages to the session."""

    @abstractmethod
    def receiver(self) -> Any:
        """A receiver of the session, not yet opened."""

    @abstractmethod
    async def lose_lock(self, receiver: Any) -> None:
        """Have the receiver's lock expire."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._subscription = Subscription()

    async def publish(self, *ids: str) -> None:
        self._subscription.messages += [Message(identifier) for identifier in ids]

    def receiver(self) -> Any:
        return Receiver(self._subscription)

    async def lose_lock(self, receiver: Any) -> None:
        receiver.lose_lock()


class OnEmulator(Harness):
    def __init__(self, client: ServiceBusClient, admin_port: int) -> None:
        self._client = client
        self._admin_port = admin_port

    async def publish(self, *ids: str) -> None:
        async with self._client.get_topic_sender("t") as sender:
            for identifier in ids:
                await sender.send_messages(ServiceBusMessage(b"x", message_id=identifier, session_id="k"))

    def receiver(self) -> Any:
        return self._client.get_subscription_receiver("t", "sessions", session_id="k", prefetch_count=10)

    async def lose_lock(self, receiver: Any) -> None:
        await inject(self._admin_port, kind="expire-locks", entity="t/Subscriptions/sessions")


def broker(folder: Path) -> ServiceBusServer:
    """A topic with a subscription that requires sessions, and one that does not."""
    subscriptions = [
        {"Name": "sessions", "Properties": {"RequiresSession": True}},
        {"Name": "plain", "Properties": {"RequiresSession": False}},
    ]
    topic = {"Name": "t", "Properties": {}, "Subscriptions": subscriptions}
    file = folder / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [], "Topics": [topic]}]}}))
    return ServiceBusServer(Entities.from_file(file))


@pytest.fixture(params=["in memory", "Service Bus emulator"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    if request.param == "in memory":
        yield InMemory()
        return
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(broker(tmp_path))
        client = ServiceBusClient.from_connection_string(server.connection_string, retry_total=0)
        yield OnEmulator(await stack.enter_async_context(client), server.admin_port)


async def receive(receiver: Any, max_wait_time: float = 5) -> list[str]:
    """Receive one message at the most, complete it, and return its id."""
    messages = await receiver.receive_messages(1, max_wait_time=max_wait_time)
    for message in messages:
        await receiver.complete_message(message)
    return [str(message.message_id) for message in messages]


async def test_messages_arrive_one_by_one_in_order_and_a_completed_one_never_again(harness: Harness) -> None:
    await harness.publish("a", "b", "c")
    receiver = harness.receiver()
    await receiver.__aenter__()

    assert [await receive(receiver) for _ in range(2)] == [["a"], ["b"]]
    await receiver.close()

    again = harness.receiver()
    await again.__aenter__()
    assert [await receive(again), await receive(again, 0.2)] == [["c"], []]
    await again.close()


async def test_a_session_without_a_message_can_be_locked_and_gives_none(harness: Harness) -> None:
    receiver = harness.receiver()
    await receiver.__aenter__()

    assert await receive(receiver, 0.2) == []
    await harness.publish("a")
    assert await receive(receiver) == ["a"]
    await receiver.close()


async def test_a_message_that_was_not_completed_arrives_again_at_the_next_receiver(harness: Harness) -> None:
    await harness.publish("a")
    receiver = harness.receiver()
    await receiver.__aenter__()
    assert len(await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)) == 1
    assert await receiver.receive_messages(1, max_wait_time=0.2) == []
    await receiver.close()

    again = harness.receiver()
    await again.__aenter__()
    assert await receive(again) == ["a"]
    await again.close()


async def test_a_receiver_whose_lock_is_lost_neither_completes_nor_receives(harness: Harness) -> None:
    await harness.publish("a", "b")
    receiver = harness.receiver()
    await receiver.__aenter__()
    (message,) = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)

    await harness.lose_lock(receiver)

    with pytest.raises(SessionLockLostError):
        await receiver.complete_message(message)
    with pytest.raises(SessionLockLostError):
        await receiver.receive_messages(1, max_wait_time=0.2)
    await receiver.close()
    again = harness.receiver()
    await again.__aenter__()
    assert [await receive(again), await receive(again)] == [["a"], ["b"]]
    await again.close()


async def test_a_session_that_another_receiver_holds_cannot_be_locked(harness: Harness) -> None:
    holder, other = harness.receiver(), harness.receiver()
    await holder.__aenter__()

    with pytest.raises(type(refusals()["held"])):
        await other.__aenter__()
    await other.close()
    await holder.close()


@pytest.mark.parametrize("cause", refusals())
async def test_what_opening_a_receiver_raises_is_what_the_sdk_raises(cause: str, tmp_path: Path) -> None:
    expected = refusals()[cause]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(broker(tmp_path))
        secret = server.connection_string
        if cause == "wrong key":
            secret = secret.replace("SharedAccessKey=", "SharedAccessKey=AAAA")
        client = await stack.enter_async_context(
            ServiceBusClient.from_connection_string(secret, retry_total=0, retry_backoff_factor=0.1)
        )
        name = {"no subscription": "nowhere", "no sessions": "plain"}.get(cause, "sessions")
        if cause == "held":
            holder = client.get_subscription_receiver("t", name, session_id="k")
            await stack.enter_async_context(holder)
        if cause == "unreachable":
            await server.stop()
        receiver = client.get_subscription_receiver("t", name, session_id="k")

        with pytest.raises(ServiceBusError) as raised:
            await receiver.__aenter__()
        await receiver.close()

    assert type(raised.value) is type(expected)
    assert type(raised.value.inner_exception) is type(getattr(expected, "inner_exception", None))
    assert amqp_condition(raised.value) == amqp_condition(expected)
    assert names_missing_entity(raised.value) is names_missing_entity(expected)
