"""The receiver over the wire: order within a session, settlement, pauses, locks, stopping."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest
from azure.servicebus.exceptions import ServiceBusError

from outbox_relay import inbox
from outbox_relay.inbox.receiver import FEWEST
from tests.support.closing import CloseLater
from tests.support.inbox import QUEUE, Broker, broker, message, watchdog_says
from tests.support.waiting import elapse, forever, look_again
from tests.support.watchdog import WATCHDOG_S

EDGES = 7


@pytest.fixture
async def servicebus(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker(tmp_path) as running:
        yield running


async def test_failures_and_lost_sessions_change_no_order(tmp_path: Path) -> None:
    """Handlers fail, locks expire, connections are cut, completions come too late: still one after another."""
    rng, keys, count = random.Random(EDGES), [f"k{number}" for number in range(8)], 12
    tried: dict[str, list[int]] = defaultdict(list)
    handled: dict[str, list[int]] = defaultdict(list)

    async def handle(received: inbox.Message) -> None:
        assert received.sequence is not None
        tried[received.key].append(received.sequence)
        if rng.random() < 0.1:
            raise OSError("the database is away")
        if rng.random() < 0.05:
            await elapse(0.12)  # a slow completion, which an edge of the broker has come too late
        if received.sequence not in handled[received.key]:
            handled[received.key].append(received.sequence)

    async with broker(tmp_path, edges=EDGES, MaxDeliveryCount=100) as servicebus:
        servicebus.publish(*keys, count=count)
        async with servicebus.receiving(handle, sessions=4):
            for inject_fault in (servicebus.expire_locks, servicebus.cut):
                before = sum(map(len, tried.values()))
                while sum(map(len, tried.values())) < before + 5:
                    await look_again()
                await inject_fault()
            await servicebus.until_empty()

    assert handled == {key: list(range(1, count + 1)) for key in keys}
    assert sum(map(len, tried.values())) > count * len(keys)
    for numbers in tried.values():
        # A repetition goes back; what follows never comes before what failed.
        assert all(after <= before + 1 for before, after in pairwise(numbers)), numbers


async def test_a_message_has_what_the_relay_sent(servicebus: Broker) -> None:
    got: asyncio.Queue[inbox.Message] = asyncio.Queue()
    servicebus.send(message("k", 3, createdAt="2026-11-22", n=5))

    async with servicebus.receiving(got.put_nowait):
        received = await asyncio.wait_for(got.get(), WATCHDOG_S)

    assert (received.id, received.key, received.action) == ("k-3", "k", "Counted")
    assert (received.sequence, received.created_at, received.delivery_count) == (3, "2026-11-22", 0)
    assert received.json() == {"action": "Counted", "number": 3}
    assert received.properties == {"type": "domainEvent", "sequence": 3, "createdAt": "2026-11-22", "n": 5}
    assert (received.sequence_number > 0, received.enqueued_at is not None) == (True, True)


async def test_what_can_never_be_handled_is_dead_lettered_and_its_successors_follow(servicebus: Broker) -> None:
    seen: list[str] = []

    async def handle(received: inbox.Message) -> None:
        seen.append(received.id)
        if received.id == "k-1":
            raise inbox.DeadLetter("unknown-product", "x" * 5000)
        received.json()

    servicebus.send(message("k", 1), message("k", 2, b"{"), message("k", 3, "an AMQP value"), message("k", 4))
    async with servicebus.receiving(handle):
        await servicebus.until_empty()
    dead = {each.message_id: each for each in await servicebus.dead_letters()}

    assert seen == ["k-1", "k-2", "k-4"]
    assert {key: each.dead_letter_reason for key, each in dead.items()} == {
        "k-1": "unknown-product",
        "k-2": "unreadable",
        "k-3": "unreadable",
    }
    assert len(dead["k-1"].dead_letter_error_description or "") == 4096


async def test_a_failed_message_comes_again_after_a_pause_until_the_broker_ends_it(tmp_path: Path) -> None:
    tried: list[tuple[str, float]] = []

    def handle(received: inbox.Message) -> None:
        tried.append((received.id, time.monotonic()))
        if received.id == "k-1":
            raise OSError("never")

    async with broker(tmp_path, MaxDeliveryCount=2) as servicebus:
        servicebus.publish("k", count=2)
        async with servicebus.receiving(handle, retry_s=1.2, retry_max_s=1.2):
            await servicebus.until_empty()
        (dead,) = await servicebus.dead_letters()

    assert [each for each, _ in tried] == ["k-1", "k-1", "k-2"]
    times = [at for _, at in tried]
    # Longer than the SDK takes to accept the session again.
    assert all(after - before >= 1.2 for before, after in pairwise(times))
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


async def test_a_failing_session_does_not_hold_up_the_others(servicebus: Broker) -> None:
    handled: list[str] = []

    async def handle(received: inbox.Message) -> None:
        if received.key == "bad":
            raise OSError("not now")
        handled.append(received.key)

    servicebus.publish("bad")
    async with servicebus.receiving(handle, sessions=1, retry_s=60.0):
        servicebus.publish("a", "b")
        async with asyncio.timeout(WATCHDOG_S):
            while len(handled) < 2:
                await look_again()

    assert sorted(handled) == ["a", "b"]


async def test_a_session_that_never_ends_leaves_others_their_turn(servicebus: Broker) -> None:
    turn = asyncio.Event()

    async def handle(received: inbox.Message) -> None:
        if received.key == "rare":
            turn.set()
        elif not turn.is_set():
            servicebus.publish("hot", start=(received.sequence or 0) + 2)

    servicebus.publish("hot", count=2)
    servicebus.publish("rare")
    async with servicebus.receiving(handle, sessions=1, hold_s=0.2):
        await asyncio.wait_for(turn.wait(), WATCHDOG_S)


async def test_the_lock_is_renewed_while_a_handler_takes_longer(tmp_path: Path) -> None:
    tried: list[str] = []

    async def handle(received: inbox.Message) -> None:
        tried.append(received.id)
        await elapse(1.6)

    async with broker(tmp_path, LockDuration="PT1S") as servicebus:
        servicebus.publish("renewed")
        async with servicebus.receiving(handle, renew_s=10.0):  # half of what is left comes first
            await servicebus.until_empty()

    assert tried == ["renewed-1"]


async def test_a_handler_whose_lock_is_lost_is_cancelled_and_settles_nothing(servicebus: Broker) -> None:
    events: list[str] = []
    started = asyncio.Event()

    async def handle(received: inbox.Message) -> None:
        events.append(f"begin {received.id} {received.delivery_count}")
        if not started.is_set():
            started.set()
            try:
                await forever()
            finally:
                events.append("cancelled")

    servicebus.publish("k", count=2)
    async with servicebus.receiving(handle, sessions=1):
        await asyncio.wait_for(started.wait(), WATCHDOG_S)
        await servicebus.expire_locks()
        await servicebus.until_empty()

    # The second message was received ahead, so the lost lock counts as a delivery of both.
    assert events == ["begin k-1 0", "cancelled", "begin k-1 1", "begin k-2 1"]


async def test_stopping_finishes_the_message_under_way_and_frees_every_session(servicebus: Broker) -> None:
    handled: list[str] = []
    started, finish = asyncio.Event(), asyncio.Event()

    async def handle(received: inbox.Message) -> None:
        started.set()
        await finish.wait()
        handled.append(received.id)

    servicebus.publish("k", count=3)
    # Three more workers wait for a session, for a minute.
    receiver = inbox.Receiver(servicebus.client, handle, queue=QUEUE, sessions=4, accept_s=60.0)
    running = asyncio.create_task(receiver.run())
    await asyncio.wait_for(started.wait(), WATCHDOG_S)
    receiver.stop()
    await elapse(0.1)
    assert not running.done()
    finish.set()
    await asyncio.wait_for(running, WATCHDOG_S)

    assert handled == ["k-1"]
    assert (await servicebus.counts())["locked"] == 0
    async with servicebus.receiving(handle):
        await servicebus.until_empty()
    assert handled == ["k-1", "k-2", "k-3"]


async def test_a_handler_that_outlasts_the_grace_is_cancelled(servicebus: Broker) -> None:
    started = asyncio.Event()

    async def handle(received: inbox.Message) -> None:
        started.set()
        await forever()

    servicebus.publish("k")
    receiver = inbox.Receiver(servicebus.client, handle, queue=QUEUE, sessions=1, grace_s=0.1)
    running = asyncio.create_task(receiver.run())
    await asyncio.wait_for(started.wait(), WATCHDOG_S)
    receiver.stop()
    await asyncio.wait_for(running, WATCHDOG_S)

    counts = await servicebus.counts()
    assert (counts["active"], counts["locked"]) == (1, 0)


async def test_a_cancelled_receiver_frees_its_sessions_at_once(servicebus: Broker) -> None:
    started, handled = asyncio.Event(), asyncio.Event()

    async def hang(received: inbox.Message) -> None:
        started.set()
        await forever()

    servicebus.publish("k")
    async with servicebus.receiving(hang):
        await asyncio.wait_for(started.wait(), WATCHDOG_S)

    async with servicebus.receiving(lambda received: handled.set()):
        await asyncio.wait_for(handled.wait(), WATCHDOG_S)


async def test_a_receiver_that_ends_while_it_waits_takes_no_session_with_it(servicebus: Broker) -> None:
    async with servicebus.receiving(lambda received: None, accept_s=60.0):
        await elapse(0.05)
    waiting = inbox.Receiver(servicebus.client, print, queue=QUEUE, accept_s=60.0, grace_s=60.0)
    running = asyncio.create_task(waiting.run())
    await elapse(0.15)
    waiting.stop()
    await asyncio.wait_for(running, WATCHDOG_S)
    handled = asyncio.Event()

    servicebus.publish("k")
    async with servicebus.receiving(lambda received: handled.set()):
        await asyncio.wait_for(handled.wait(), WATCHDOG_S)


async def test_a_quiet_receiver_has_few_connections_and_a_burst_is_handled_at_full_width(
    servicebus: Broker,
) -> None:
    handled: set[str] = set()
    all_at_once, width = asyncio.Event(), 24

    async def handle(received: inbox.Message) -> None:
        handled.add(received.key)
        if len(handled) == width:
            all_at_once.set()
        await all_at_once.wait()

    async with servicebus.receiving(handle, sessions=width, accept_s=2.0):
        await until(lambda: servicebus.receivers == FEWEST)
        servicebus.publish(*(f"k{number}" for number in range(width)))
        # No handler ends before all have begun.
        await asyncio.wait_for(all_at_once.wait(), WATCHDOG_S)
        assert servicebus.receivers == width
        await servicebus.until_empty()
        await until(lambda: servicebus.receivers == FEWEST)


async def test_a_handler_that_blocks_the_loop_is_named(servicebus: Broker) -> None:
    lines: list[str] = []
    noticed = threading.Event()

    def said(line: str) -> None:
        lines.append(line)
        if "'k-1'" in line:
            noticed.set()

    def handle(received: inbox.Message) -> None:
        assert noticed.wait(10)

    servicebus.publish("k")
    with watchdog_says(said):
        async with servicebus.receiving(handle, renew_s=0.2):
            await servicebus.until_empty()

    assert any(
        line.startswith("The handler of message 'k-1' of session 'k' has blocked the event loop") for line in lines
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        while not condition():
            await look_again()


async def test_what_no_retry_mends_ends_the_receiver_at_its_start(servicebus: Broker) -> None:
    with pytest.raises(inbox.SessionsNotEnabled, match="plain does not require sessions"):
        await asyncio.wait_for(inbox.Receiver(servicebus.client, print, queue="plain").run(), WATCHDOG_S)
    with pytest.raises(ServiceBusError) as missing:
        await asyncio.wait_for(inbox.Receiver(servicebus.client, print, queue="nowhere").run(), WATCHDOG_S)
    assert "receiving from nowhere" in missing.value.__notes__[0]


_CRASHING = """
import asyncio, os, sys
from outbox_relay import inbox

async def main(address, path):
    connection = inbox.SqliteConnection(path)
    store = inbox.SqliteStore(connection)

    async def handle(message):
        async with store.once(message) as arrival:
            if arrival.first:
                connection.execute("INSERT INTO effects VALUES (?)", (message.id,))
        os._exit(9)  # the effect is committed, and the message is not completed

    async with inbox.connect(address) as client:
        await inbox.Receiver(client, handle, queue="orders", sessions=1).run()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_crash_between_effect_and_settlement_does_not_repeat_the_effect(
    servicebus: Broker, tmp_path: Path, close_later: CloseLater
) -> None:
    path = tmp_path / "effects.sqlite"
    connection = close_later(inbox.SqliteConnection(path))
    connection.execute("CREATE TABLE effects (id TEXT)")
    servicebus.publish("k", count=2)
    crashing = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CRASHING, servicebus.connection_string, str(path)
    )
    assert await asyncio.wait_for(crashing.wait(), WATCHDOG_S) == 9

    store, arrivals = inbox.SqliteStore(connection), []

    async def handle(received: inbox.Message) -> None:
        async with store.once(received) as arrival:
            arrivals.append(arrival.first)
            if arrival.first:
                connection.execute("INSERT INTO effects VALUES (?)", (received.id,))

    async with servicebus.receiving(handle):
        await servicebus.until_empty()

    assert arrivals == [False, True]  # without the store, the effect would be there twice
    assert connection.execute("SELECT id FROM effects ORDER BY rowid").fetchall() == [("k-1",), ("k-2",)]


async def test_missing_and_late_events_are_told_across_redeliveries(
    servicebus: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outbox_relay.inbox")
    store = inbox.MemoryStore()
    told: list[tuple[int | None, inbox.Arrival]] = []
    failed = False

    async def handle(received: inbox.Message) -> None:
        nonlocal failed
        async with store.once(received) as arrival:
            if received.sequence == 4 and not failed:
                failed = True
                raise OSError("after it was told of the gap, which then must be told again")
            told.append((received.sequence, arrival))

    servicebus.send(*(message("k", number) for number in (1, 4, 5, 3, 6)))
    async with servicebus.receiving(handle):
        await servicebus.until_empty()

    assert [each for each in caplog.messages if "closes a gap" in each] == [
        "Message 'k-3' of key 'k' closes a gap: its number 3 was missing"
    ]
    assert told == [
        (1, inbox.Arrival(first=True)),
        (4, inbox.Arrival(first=True, missing=range(2, 4))),
        (5, inbox.Arrival(first=True)),
        (3, inbox.Arrival(first=True, late=True, was_missing=True)),
        (6, inbox.Arrival(first=True)),
    ]
    assert await store.gaps() == [inbox.Gap("k", 2, 2, "k", QUEUE)]
