"""Dead letters are handled where they are, through the real SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusAuthenticationError
from proton import char

from outbox_relay import inbox
from outbox_relay.inbox.dead_letters import Order
from outbox_relay.inbox.received import Place
from tests.support.inbox import QUEUE, Broker, broker, message
from tests.support.waiting import forever
from tests.support.watchdog import WATCHDOG_S

OPTIONS: dict[str, Any] = {"idle_s": 0.2, "accept_s": 1.0, "renew_s": 0.1}


@pytest.fixture
def edges() -> int | None:
    return None


@pytest.fixture
async def servicebus(tmp_path: Path, edges: int | None) -> AsyncIterator[Broker]:
    async with broker(tmp_path, edges=edges) as started:
        yield started


async def drain(servicebus: Broker, handler: Any, **options: Any) -> inbox.DeadLetterReport:
    receiver = inbox.DeadLetterReceiver(servicebus.client, handler, queue=QUEUE, **{**OPTIONS, **options})
    async with asyncio.timeout(WATCHDOG_S):
        return await receiver.run()


async def test_dead_letters_are_handled_in_sequence_and_removed(servicebus: Broker) -> None:
    servicebus.publish("k", "l", count=4)
    servicebus.dead_letter("k", 3)
    servicebus.dead_letter("l", 4)
    handled: list[inbox.Message] = []

    report = await drain(servicebus, handled.append)

    assert [each.id for each in handled if each.key == "k"] == ["k-1", "k-2", "k-3"]
    assert [each.id for each in handled if each.key == "l"] == ["l-1", "l-2", "l-3", "l-4"]
    assert handled[0].topic == QUEUE
    assert handled[0].properties["DeadLetterReason"] == "schema"
    assert (report.handled, report.remainder, servicebus.dead()) == (7, [], [])


async def test_an_empty_queue_is_drained_at_once(servicebus: Broker) -> None:
    assert await drain(servicebus, print) == inbox.DeadLetterReport(0, [])


async def test_effects_stay_once_and_what_comes_behind_newer_events_is_late(servicebus: Broker) -> None:
    store = inbox.MemoryStore()
    effects: list[tuple[str, bool, range]] = []

    async def handle(message: inbox.Message) -> None:
        async with store.once(message) as arrival:
            if arrival.first:
                effects.append((message.id, arrival.late, arrival.missing))

    servicebus.publish("k", count=4)
    servicebus.dead_letter("k")
    async with servicebus.receiving(handle):
        await servicebus.until_empty()
    # Its effect is there, and the process died before it was completed, too often.
    servicebus.publish("k", start=5)
    servicebus.publish("k", start=2)
    servicebus.dead_letter("k", 2)

    report = await drain(servicebus, handle)

    assert [each[:2] for each in effects] == [
        ("k-2", False),
        ("k-3", False),
        ("k-4", False),
        ("k-1", True),
        ("k-5", False),
    ]
    assert (report.handled, servicebus.dead(), await store.gaps()) == (3, [], [])


async def test_one_that_fails_stays_with_its_successors_and_other_keys_go_on(servicebus: Broker) -> None:
    servicebus.publish("k", "l", count=3)
    servicebus.dead_letter("k", 3)
    servicebus.dead_letter("l", 3)
    handled: list[str] = []

    def handle(message: inbox.Message) -> None:
        if message.id == "k-2":
            raise RuntimeError("not now")
        handled.append(message.id)

    report = await drain(servicebus, handle)

    assert sorted(handled) == ["k-1", "l-1", "l-2", "l-3"]
    assert report.handled == 4
    assert [(each.key, each.why) for each in report.remainder] == [
        ("k", "the handler failed: RuntimeError"),
        ("k", "an earlier one of its key stays"),
    ]
    assert servicebus.dead() == ["k-2", "k-3"]
    # They are free for the next run at once, and their deliveries are not counted.
    assert (await drain(servicebus, lambda each: handled.append(each.id))).handled == 2
    assert handled[-2:] == ["k-2", "k-3"]


async def test_one_that_can_never_be_handled_stays_and_its_successors_follow(servicebus: Broker) -> None:
    servicebus.send(message("k", 1, b"\xff"), message("k", 2), message("k", 3, letter=char("é")), message("k", 4))
    servicebus.dead_letter("k", 4)
    handled: list[str] = []

    def handle(message: inbox.Message) -> None:
        message.json()
        handled.append(message.id)

    report = await drain(servicebus, handle)

    assert handled == ["k-2", "k-4"]
    assert [each.why.partition(":")[0] for each in report.remainder] == ["unreadable", "unreadable"]
    assert servicebus.dead() == ["k-1", "k-3"]


@pytest.mark.slow
async def test_a_handler_that_takes_longer_than_the_lock_keeps_it(tmp_path: Path) -> None:
    calls = []

    async def handle(message: inbox.Message) -> None:
        calls.append(message.id)
        await asyncio.sleep(3.5 if message.id == "k-1" else 0)

    async with broker(tmp_path, LockDuration="PT3S") as servicebus:
        servicebus.publish("k", count=2)
        servicebus.dead_letter("k", 2)
        report = await drain(servicebus, handle)

        assert (calls, report.handled, servicebus.dead()) == (["k-1", "k-2"], 2, [])


async def test_when_the_lock_is_lost_the_handler_is_cancelled_and_called_again(servicebus: Broker) -> None:
    servicebus.publish("k", count=2)
    servicebus.dead_letter("k", 2)
    calls: list[str] = []
    cancelled: list[str] = []

    async def handle(message: inbox.Message) -> None:
        calls.append(message.id)
        if len(calls) == 1:
            servicebus.outlet.dead_letters.expire_all_locks()
            try:
                await forever()
            except asyncio.CancelledError:
                cancelled.append(message.id)
                raise

    report = await drain(servicebus, handle)

    assert (calls, cancelled) == (["k-1", "k-1", "k-2"], ["k-1"])
    assert (report.handled, servicebus.dead()) == (2, [])


async def hold_first(servicebus: Broker, count: int = 1) -> tuple[Any, list[ServiceBusReceivedMessage]]:
    """Another receiver, which has locked the first dead letters."""
    other = servicebus.client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    await other.__aenter__()
    return other, await other.receive_messages(count, max_wait_time=WATCHDOG_S)


async def test_what_somebody_else_has_locked_comes_before_its_successors(servicebus: Broker) -> None:
    servicebus.publish("k", "l", count=2)
    servicebus.dead_letter("k", 2)
    servicebus.dead_letter("l", 1)
    other, (first,) = await hold_first(servicebus)
    handled: list[str] = []

    async def handle(message: inbox.Message) -> None:
        handled.append(message.id)
        if message.id == "l-1":
            await other.abandon_message(first)

    report = await drain(servicebus, handle, accept_s=20.0)
    await other.close()

    assert handled == ["l-1", "k-1", "k-2"]
    assert (report.handled, servicebus.dead()) == (3, [])


async def test_what_somebody_else_keeps_locked_is_left_with_its_successors(servicebus: Broker) -> None:
    servicebus.publish("k", count=2)
    servicebus.dead_letter("k", 2)
    other, _ = await hold_first(servicebus)

    report = await drain(servicebus, print, accept_s=0.3)
    await other.close()

    assert [each.why for each in report.remainder] == [
        "another receiver has locked it",
        "an earlier one of its key stays",
    ]


async def test_a_run_that_is_stopped_or_cancelled_frees_what_it_has(servicebus: Broker) -> None:
    servicebus.publish("k", count=3)
    servicebus.dead_letter("k", 3)
    handled: list[str] = []

    def handle(message: inbox.Message) -> None:
        handled.append(message.id)
        receiver.stop()

    receiver = inbox.DeadLetterReceiver(servicebus.client, handle, queue=QUEUE, **OPTIONS)

    report = await asyncio.wait_for(receiver.run(), WATCHDOG_S)

    assert (handled, report.handled) == (["k-1"], 1)
    assert [each.why for each in report.remainder] == [
        "the receiver was stopped",
        "an earlier one of its key stays",
    ]
    assert servicebus.outlet.dead_letters.counts().locked == 0

    started = asyncio.Event()

    async def forever(_: inbox.Message) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(drain(servicebus, forever))
    await asyncio.wait_for(started.wait(), WATCHDOG_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert servicebus.dead() == ["k-2", "k-3"]
    assert servicebus.outlet.dead_letters.counts().locked == 0


async def test_a_queue_that_does_not_exist_is_an_error(servicebus: Broker) -> None:
    receiver = inbox.DeadLetterReceiver(servicebus.client, print, queue="none")
    with pytest.raises((MessagingEntityNotFoundError, ServiceBusAuthenticationError)):
        await asyncio.wait_for(receiver.run(), WATCHDOG_S)


def test_it_is_clear_what_to_receive_from() -> None:
    for names in ({}, {"topic": "t"}, {"subscription": "s"}, {"topic": "t", "subscription": "s", "queue": "q"}):
        with pytest.raises(ValueError, match="Give a topic and a subscription, or a queue"):
            inbox.DeadLetterReceiver(object(), print, **names)  # type: ignore[arg-type]


@pytest.mark.parametrize("edges", [3])
async def test_a_broker_that_does_its_worst_gives_each_key_in_sequence(servicebus: Broker, edges: int) -> None:
    keys = [f"k{number}" for number in range(5)]
    servicebus.publish(*keys, count=20)
    for key in keys:
        servicebus.dead_letter(key, 20)
    store = inbox.MemoryStore()
    effects: list[str] = []

    async def handle(message: inbox.Message) -> None:
        async with store.once(message) as arrival:
            if arrival.first:
                assert not arrival.missing
                effects.append(message.id)

    report = await drain(servicebus, handle, prefetch=7)

    assert (report.handled, report.remainder, servicebus.dead()) == (100, [], [])
    for key in keys:
        assert [each for each in effects if each.startswith(f"{key}-")] == [f"{key}-{n}" for n in range(1, 21)]


def test_the_order_of_a_key_is_that_of_its_numbers() -> None:
    order = Order()
    order.learn([Place(3, "k"), Place(1, "k"), Place(2, "l")])
    order.add(Place(2, "k"))

    assert [order.is_next(Place(number, "k")) for number in (1, 2, 3)] == [True, False, False]
    order.pass_by(Place(1, "k"))
    order.learn([Place(1, "k"), Place(3, "k")])
    assert order.is_next(Place(3, "k"))
    assert order.left() == [Place(3, "k")]
