"""A receiver that parks keys, over the wire: what is behind a poison message waits, and follows in order."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox_relay import inbox
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.inbox.event_loop import end_tasks
from outbox_relay.inbox.parking import Cause, Kept, ParkedMessage
from tests.support.inbox import QUEUE, Broker, broker, message
from tests.support.waiting import forever, look_again
from tests.support.watchdog import WATCHDOG_S

QUICK: dict[str, Any] = {"on_poison": "park", "attempts": 2, "released_s": 0.05, "retry_max_s": 0.05}


@pytest.fixture
async def servicebus(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker(tmp_path) as running:
        yield running


class Consumer:
    """A handler with a store, and what it cannot handle."""

    def __init__(self) -> None:
        self.store = inbox.MemoryStore()
        self.poison: dict[str, Exception] = {}
        self.handled: dict[str, list[int]] = {}

    async def handle(self, received: inbox.Message) -> None:
        if received.id in self.poison:
            raise self.poison[received.id]
        async with self.store.once(received) as arrival:
            if arrival.first:
                assert received.sequence is not None
                self.handled.setdefault(received.key, []).append(received.sequence)

    async def until_parked(self, key: str, count: int) -> Cause:
        """Wait until that number of messages is set aside; returns why."""
        async with asyncio.timeout(WATCHDOG_S):
            while True:
                for each in await self.store.keys():
                    if (each.key, each.messages, each.is_released) == (key, count, False):
                        return each.cause
                await look_again()

    async def discard_first(self, key: str) -> None:
        """Discard the first message of a parked key."""
        await self.store.discard(QUEUE, key, await self.store.messages(QUEUE, key, limit=1))

    async def until_handled(self, **expected: list[int]) -> None:
        """Wait until these are handled, in this order, and no key is parked."""
        async with asyncio.timeout(WATCHDOG_S):
            while self.handled != expected or await self.store.keys():
                await look_again()


async def test_what_is_behind_a_poison_message_follows_it_in_order(
    servicebus: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer()
    consumer.poison = {"a-2": inbox.DeadLetter("unknown-title", "Frankenstein"), "b-1": OSError("Mary's disk")}
    servicebus.publish("a", "b", "c", count=4)

    with caplog.at_level(logging.INFO, "outbox_relay.inbox"):
        async with servicebus.receiving(consumer.handle, parking=consumer.store, **QUICK):
            assert await consumer.until_parked("a", 3) == Cause("unknown-title", "DeadLetter", "Frankenstein")
            assert await consumer.until_parked("b", 4) == Cause("handler-failed", "OSError", "Mary's disk")
            await servicebus.until_empty()
            assert consumer.handled == {"a": [1], "c": [1, 2, 3, 4]}

            # Released too early, it is parked again, after as many attempts as before.
            assert await consumer.store.release(QUEUE, "a")
            assert await consumer.store.release(QUEUE, "b")
            async with asyncio.timeout(WATCHDOG_S):
                while [each.is_released for each in await consumer.store.keys()] != [False, False]:
                    await look_again()
            assert [each.attempts for each in await consumer.store.messages(QUEUE, "b")] == [2, 0, 0, 0]

            consumer.poison.clear()
            servicebus.publish("a", start=5)
            await consumer.until_parked("a", 4)
            await consumer.discard_first("a")
            for key in ("a", "b"):
                await consumer.store.release(QUEUE, key)
            await consumer.until_handled(a=[1, 3, 4, 5], b=[1, 2, 3, 4], c=[1, 2, 3, 4])
            servicebus.publish("a", start=6)
            await consumer.until_handled(a=[1, 3, 4, 5, 6], b=[1, 2, 3, 4], c=[1, 2, 3, 4])

    assert servicebus.dead() == []
    assert "Frankenstein" not in caplog.text
    assert "Mary" not in caplog.text
    assert "'a' of orders because of message 'a-2'" in caplog.text
    assert "test_receiving_parked.py" in caplog.text  # where the handler has failed


async def test_a_message_that_cannot_be_read_keeps_its_place(servicebus: Broker) -> None:
    consumer = Consumer()
    servicebus.send(message("k", 1), message("k", 2, "an AMQP value"), message("k", 3))

    async with servicebus.receiving(consumer.handle, parking=consumer.store, **QUICK):
        assert (await consumer.until_parked("k", 2)).reason == "unreadable"
        await servicebus.until_empty()
        assert servicebus.dead() == ["k-2"]
        with pytest.raises(inbox.NotReleased, match="k-2"):
            await consumer.store.release(QUEUE, "k")
        await consumer.discard_first("k")
        await consumer.store.release(QUEUE, "k")
        await consumer.until_handled(k=[1, 3])


async def test_while_the_store_is_away_nothing_is_dead_lettered_or_overtaken(tmp_path: Path) -> None:
    class Away(inbox.MemoryStore):
        failures = 3

        async def park(self, message: ParkedMessage, cause: Cause) -> Kept:
            if self.failures:
                self.failures -= 1
                raise OSError("the store is away")
            return await super().park(message, cause)

    consumer = Consumer()
    consumer.store = Away()
    consumer.poison = {"k-1": OSError()}
    async with broker(tmp_path, MaxDeliveryCount=3) as servicebus:
        servicebus.publish("k", count=3)
        async with servicebus.receiving(consumer.handle, parking=consumer.store, **QUICK, retry_s=0.0):
            await consumer.until_parked("k", 3)

        assert servicebus.dead() == []
    assert consumer.handled == {}


async def test_a_message_whose_deliveries_end_without_an_answer_parks_its_key(servicebus: Broker) -> None:
    """End each delivery without an answer, as when each process that handles it is killed."""
    consumer = Consumer()
    tried: list[int] = []

    async def hang(received: inbox.Message) -> None:
        if received.sequence == 1:
            tried.append(received.delivery_count)
            await forever()
        await consumer.handle(received)

    servicebus.publish("k", count=2)
    async with servicebus.receiving(hang, parking=consumer.store, **QUICK):
        async with asyncio.timeout(WATCHDOG_S):
            for count in (1, 2):
                while len(tried) < count:
                    await look_again()
                await servicebus.expire_locks()
        assert await consumer.until_parked("k", 2) == Cause("deliveries-exhausted")
    assert tried == [0, 1]


async def test_a_message_that_cannot_be_stored_is_dead_lettered_and_keeps_its_place(servicebus: Broker) -> None:
    class Small(inbox.MemoryStore):
        async def set_aside(self, message: ParkedMessage) -> Kept:
            if message.message is not None and message.number == 2:
                raise inbox.NotStorable("it is too large")
            return await super().set_aside(message)

    consumer = Consumer()
    consumer.store = Small()
    consumer.poison = {"k-1": inbox.DeadLetter("poison")}
    servicebus.publish("k", count=3)
    async with servicebus.receiving(consumer.handle, parking=consumer.store, **QUICK):
        await consumer.until_parked("k", 3)
        await servicebus.until_empty()
        assert servicebus.dead() == ["k-2"]
        consumer.poison.clear()
        await consumer.store.release(QUEUE, "k")
        assert (await consumer.until_parked("k", 2)).reason == "unreadable"
    assert consumer.handled == {"k": [1]}


async def test_a_message_whose_place_alone_is_stored_is_dead_lettered_when_it_comes_again(
    servicebus: Broker,
) -> None:
    """The receiver before it has ended after storing the place, and before dead-lettering the message."""
    consumer = Consumer()
    kept = ParkedMessage.of(inbox.Message(id="k-1", key="k", body=b"", sequence_number=1, topic=QUEUE))
    await consumer.store.park(replace(kept, message=None), Cause("poison"))
    servicebus.publish("k", count=2)

    async with servicebus.receiving(consumer.handle, parking=consumer.store, **QUICK):
        assert await consumer.until_parked("k", 2) == Cause("poison")
        await servicebus.until_empty()

    assert servicebus.dead() == ["k-1"]
    assert [each.number for each in await consumer.store.messages(QUEUE, "k")] == [1, 2]


async def test_a_receiver_that_stops_gives_a_released_key_back_at_once(servicebus: Broker) -> None:
    consumer = Consumer()
    inside, leave = asyncio.Event(), asyncio.Event()

    async def handle(received: inbox.Message) -> None:
        inside.set()
        await leave.wait()
        await consumer.handle(received)

    kept = ParkedMessage.of(replace(inbox.Message(id="k-1", key="k", body=b"", sequence=1), topic=QUEUE))
    await consumer.store.park(kept, Cause("poison"))
    await consumer.store.set_aside(replace(kept, id="k-2", number=2))
    await consumer.store.release(QUEUE, "k")
    async with servicebus.receiving(handle, parking=consumer.store, **QUICK) as receiver:
        await asyncio.wait_for(inside.wait(), WATCHDOG_S)
        receiver.stop()
        leave.set()
        async with asyncio.timeout(WATCHDOG_S):
            while await consumer.store.claim(QUEUE, timedelta(minutes=1)) is None:
                await look_again()
    assert consumer.handled == {"k": [1]}
    assert [each.number for each in await consumer.store.messages(QUEUE, "k")] == [2]


def test_where_to_park_is_asked_for() -> None:
    client: Any = object()
    for options in ({"on_poison": "park"}, {"parking": inbox.MemoryStore()}):
        with pytest.raises(ValueError, match="parking=store together"):
            inbox.Receiver(client, print, queue=QUEUE, **options)
    with pytest.raises(ValueError, match="must be 'skip' or 'park'"):
        inbox.Receiver(client, print, queue=QUEUE, on_poison="block")  # type: ignore[arg-type]


async def test_two_subscriptions_of_one_consumer_lose_nothing_of_a_parked_key(tmp_path: Path) -> None:
    """Their numbers are the same: both begin at 1."""
    sessions = {"RequiresSession": True, "MaxDeliveryCount": 10}
    rules = [{"Name": "all", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}}]
    subscriptions = [{"Name": name, "Properties": sessions, "Rules": rules} for name in ("loans", "sales")]
    namespace = {"Name": "n", "Queues": [], "Topics": [{"Name": "events", "Subscriptions": subscriptions}]}
    (tmp_path / "Config.json").write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    consumer, handled = Consumer(), asyncio.Event()
    poisoned = True

    async def handle(received: inbox.Message) -> None:
        if poisoned:
            raise inbox.DeadLetter("unknown-title")
        # Events of the two subscriptions are different ones here.
        async with consumer.store.once(replace(received, id=f"{received.subscription} {received.id}")):
            consumer.handled.setdefault(received.subscription, []).append(received.sequence or 0)
        if sum(map(len, consumer.handled.values())) == 6:
            handled.set()

    async with (
        ServiceBusServer(Entities.from_file(tmp_path / "Config.json")) as server,
        inbox.connect(server.connection_string) as client,
    ):
        for number in (1, 2, 3):
            topic = server.broker.namespace.destination("events")
            topic.publish([parse(bytes(message("k", number).encode()))])
        receivers = [
            inbox.Receiver(client, handle, topic="events", subscription=name, parking=consumer.store, **QUICK)
            for name in ("loans", "sales")
        ]
        running = [asyncio.create_task(each.run()) for each in receivers]
        async with asyncio.timeout(WATCHDOG_S):
            while [each.messages for each in await consumer.store.keys()] != [6]:
                await look_again()
            poisoned = False
            await consumer.store.release("events", "k")
            await handled.wait()
        await end_tasks(running)

    assert consumer.handled == {"loans": [1, 2, 3], "sales": [1, 2, 3]}
