"""`python -m relay deadletters resubmit` through the real SDK, counted at two subscriptions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus.aio import ServiceBusClient
from proton import char, decimal64, symbol, timestamp, ubyte

from outbox_relay import inbox
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of
from outbox_relay.operator.deadletters import lookout
from outbox_relay.operator.deadletters.queue import DeadLetterQueue
from relay.core.times import format_time
from tests.support.broker import TurnableClock, inject
from tests.support.dead_letters import TOPIC, Topic, event
from tests.support.operators import relay_command, relay_process
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

WINDOW_MS = 300_000
NAMED = "ContactNameUpdatedEvent"
"""The action of the events that both subscriptions get."""


@pytest.fixture
def clock() -> TurnableClock:
    """The broker's, which is behind: what is published now is old when it is turned forward."""
    clock = TurnableClock()
    clock.ahead_ms = -2 * WINDOW_MS
    return clock


@pytest.fixture
def edges() -> int | None:
    return None


@pytest.fixture
async def topic(
    entities: Entities, clock: TurnableClock, edges: int | None, quick_sdk: None
) -> AsyncIterator[Topic]:
    async with ServiceBusServer(entities, clock=clock, edges=edges) as server:
        yield Topic(server)


@pytest.fixture
def environment(topic: Topic) -> dict[str, str]:
    return topic.environment


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for a copy that does not come for a moment only."""
    monkeypatch.setattr(lookout, "SEEN_WITHIN_S", 0.5)


def now(clock: TurnableClock) -> None:
    """Let the duplicate detection window of what was published pass."""
    clock.ahead_ms = 0


async def resubmit(environment: dict[str, str], *words: str) -> Any:
    return await relay_command(environment, "deadletters", "resubmit", *words, "--yes", "--json")


async def test_within_the_duplicate_detection_window_nothing_is_sent_and_the_time_is_named(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)
    topic.publish(event("k", 2))
    topic.dead_letter("all", "k")

    run = await relay_command(environment, "deadletters", "resubmit", "all/2", "--yes")
    whole = await resubmit(environment, "--all")

    assert run.code == 1
    assert "all/2: not resubmitted: the topic, which detects duplicates for PT5M, would drop its copy" in run.out
    assert "resubmit it after 20" in run.out
    assert (whole.code, whole.json["resubmitted"]) == (1, ["all/1"])
    (early,) = whole.json["tooEarly"]
    assert early["name"] == "all/2"
    enqueued = topic.outlet("all").dead_letters.peek(0, 1)[0].enqueued_ms
    assert early["from"] == format_time(-(-(enqueued + WINDOW_MS) // 1000))
    assert topic.dead("all") == ["k-2"]


@pytest.mark.parametrize("identifier", [None, ""])
async def test_dead_letters_without_an_id_are_not_taken_for_one_another(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, identifier: str | None
) -> None:
    first, second = event("k", 1), event("k", 2)
    first.id = second.id = identifier
    clock.ahead_ms = -4 * WINDOW_MS
    topic.publish(event("j", 1), first)
    # Within its window, a second message with the empty id would be a duplicate.
    clock.ahead_ms = -2 * WINDOW_MS
    topic.publish(second, event("k", 3))
    topic.dead_letter("all", "k", count=3)
    topic.dead_letter("all", "j")
    now(clock)

    run = await resubmit(environment, "--all", "--subscription", "all")

    assert (run.code, len(run.json["resubmitted"])) == (1, 1)
    assert sorted(each["why"] for each in run.json["left"]) == ["behind", "nameless", "nameless"]
    assert topic.dead("all") == [identifier, identifier, "k-3"]
    assert topic.ids("all") == ["j-1"]


async def test_the_counts_of_both_subscriptions_are_what_the_command_said(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    effects: dict[str, list[tuple[str, bool]]] = {"all": [], "names": []}
    topic.publish(*(event("k", number, NAMED) for number in (1, 2, 3)))
    topic.dead_letter("all", "k")
    now(clock)
    async with consumers(topic, effects) as stores:
        await asyncio.wait_for(until(lambda: (len(effects["all"]), len(effects["names"])) == (2, 3)), WATCHDOG_S)

        asked = await relay_command(environment, "deadletters", "resubmit", "all/1", typed="yes\n")
        await asyncio.wait_for(until(lambda: topic.ids("all") == topic.ids("names") == []), WATCHDOG_S)

        missing = await stores["all"].gaps()

    assert asked.code == 0
    assert "These events go, again, to 'names' as well." in asked.err
    assert asked.out == "resubmitted 1, left 0\nThese events went, again, to 'names' as well.\n"
    assert (topic.dead("all"), topic.dead("names")) == ([], [])
    # The subscription that lacked it gets it late, which `once` reports; the other one's consumer skips it.
    assert effects["all"] == [("k-2", False), ("k-3", False), ("k-1", True)]
    assert effects["names"] == [("k-1", False), ("k-2", False), ("k-3", False)]
    assert missing == []


@asynccontextmanager
async def consumers(
    topic: Topic, effects: dict[str, list[tuple[str, bool]]]
) -> AsyncIterator[dict[str, inbox.MemoryStore]]:
    """A consumer of each subscription, which notes the effects that it has."""
    stores = {name: inbox.MemoryStore() for name in effects}

    def handler(name: str) -> Any:
        async def handle(message: inbox.Message) -> None:
            async with stores[name].once(message) as arrival:
                if arrival.first:
                    effects[name].append((message.id, arrival.late))

        return handle

    async with inbox.connect(topic.servicebus.connection_string) as client:
        receivers = [
            inbox.Receiver(client, handler(name), topic=TOPIC, subscription=name, sessions=1, accept_s=2.0)
            for name in effects
        ]
        running = [asyncio.create_task(receiver.run()) for receiver in receivers]
        try:
            yield stores
        finally:
            for receiver in receivers:
                receiver.stop()
            await asyncio.gather(*running)


async def until(condition: Any) -> None:
    while not condition():
        await look_again()


async def test_a_copy_is_what_was_sent_to_the_byte(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    original = event(
        "k",
        1,
        text="é",
        small=ubyte(7),
        large=2**40,
        binary=b"\xff\x00",
        letter=char("é"),
        price=decimal64(1),
        at=timestamp(1_700_000_000_000),
        id=UUID(int=5),
        name=symbol("s"),
        nothing=None,
    )
    original.annotations = {symbol("x-opt-partition-key"): "k", symbol("mine"): ubyte(3)}
    original.ttl = 30.0
    topic.publish(original, event("k", 2, body=b"x" * 250_000))
    sent = [each.message for each in topic.outlet("all").messages.peek(0, 10)]
    topic.dead_letter("all", "k", count=2)
    now(clock)

    run = await resubmit(environment, "--all")

    assert (run.code, run.json["resubmitted"]) == (0, ["all/1", "all/2"])
    copies = [each.message for each in topic.outlet("all").messages.peek(0, 10)]
    assert [each.bare for each in copies] == [each.bare for each in sent]
    assert [each.decoded_annotations for each in copies] == [each.decoded_annotations for each in sent]
    assert [each.ttl_ms for each in copies] == [None, None]


async def test_the_copies_of_a_key_come_in_order_and_those_of_many_keys_in_one_run(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    keys = [f"k{number}" for number in range(10)]
    for number in (1, 2, 3):
        topic.publish(*(event(key, number) for key in keys))
    for key in keys:
        topic.dead_letter("all", key, count=3)
    now(clock)

    run = await resubmit(environment, "--all", "--subscription", "all")

    assert (run.code, len(run.json["resubmitted"])) == (0, 30)
    waiting = topic.ids("all")
    assert {key: [each for each in waiting if each and each.startswith(f"{key}-")] for key in keys} == {
        key: [f"{key}-{number}" for number in (1, 2, 3)] for key in keys
    }
    assert topic.dead("all") == []


def entities_with(subscriptions: dict[str, Any], **properties: Any) -> pytest.MarkDecorator:
    """The topic with other properties and subscriptions."""
    detecting = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5M"}
    topic = {**detecting, **properties, "Subscriptions": subscriptions}
    return pytest.mark.parametrize("entities", [entities_of(topics={TOPIC: topic})], ids=["own entities"])


@entities_with({"all": {"RequiresSession": True}}, EnablePartitioning=True)
async def test_a_partitioned_topic_takes_the_copies_of_each_key_in_order(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    keys = [f"k{number}" for number in range(6)]
    for number in (1, 2):
        topic.publish(*(event(key, number) for key in keys))
    for key in keys:
        topic.dead_letter("all", key, count=2)
    now(clock)

    run = await resubmit(environment, "--all", "--subscription", "all")

    assert (run.code, len(run.json["resubmitted"])) == (0, 12)
    assert len({int(name.partition("/")[2]) >> 48 for name in run.json["resubmitted"]}) > 1
    assert [topic.ids("all", key) for key in keys] == [[f"{key}-1", f"{key}-2"] for key in keys]


@entities_with({"plain": {}})
async def test_a_subscription_without_sessions_is_looked_into_without_a_lock(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1), event("k", 2))
    topic.dead_letter("plain", None, count=2)
    now(clock)

    run = await resubmit(environment, "--all", "--subscription", "plain")

    assert (run.code, run.json["resubmitted"]) == (0, ["plain/1", "plain/2"])
    assert (topic.ids("plain"), topic.dead("plain")) == (["k-1", "k-2"], [])


async def test_an_event_that_is_dead_in_both_subscriptions_is_sent_once(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1, NAMED))
    for subscription in ("all", "names"):
        topic.dead_letter(subscription, "k")
    now(clock)

    run = await resubmit(environment, "--all")

    assert (run.code, run.json["resubmitted"]) == (0, ["all/1", "names/1"])
    assert run.json["otherSubscriptions"] == []
    assert (topic.ids("all"), topic.ids("names")) == (["k-1"], ["k-1"])
    assert topic.accepted() == {"accepted": 2, "duplicates": 0}


async def test_a_copy_that_the_topic_drops_is_not_seen_and_the_dead_letter_stays(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, impatient: None
) -> None:
    topic.publish(event("k", 1), event("k", 2))
    topic.dead_letter("all", "k", count=2)
    now(clock)
    topic.publish(event("k", 1))
    topic.complete("all", "k")

    run = await relay_command(environment, "deadletters", "resubmit", "--all", "--yes", "--json")

    assert run.code == 1
    assert [(each["name"], each["why"]) for each in run.json["left"]] == [("all/1", "unseen"), ("all/2", "behind")]
    assert "try again after 20" in run.json["left"][0]["detail"]
    assert topic.accepted() == {"accepted": 4, "duplicates": 1}
    assert topic.dead("all") == ["k-1", "k-2"]
    assert topic.counts("all").locked == 0


async def test_a_session_that_a_consumer_keeps_is_left_alone(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1), event("k", 2), event("l", 1))
    topic.dead_letter("all", "k")
    topic.dead_letter("all", "l")
    now(clock)
    async with (
        ServiceBusClient.from_connection_string(topic.servicebus.connection_string) as client,
        client.get_subscription_receiver(TOPIC, "all", session_id="k"),
    ):
        run = await resubmit(environment, "--all", "--wait", "1s")

    assert (run.code, run.json["resubmitted"]) == (1, ["all/3"])
    assert [(each["name"], each["why"]) for each in run.json["left"]] == [("all/1", "busy")]
    assert topic.dead("all") == ["k-1"]


async def test_an_acceptance_that_is_lost_is_no_loss_and_the_next_run_finds_the_copy(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)
    await inject(topic.servicebus.admin_port, kind="cut-after-transfer", entity=TOPIC, count=1)

    first = await resubmit(environment, "--all")
    second = await resubmit(environment, "--all")

    assert (first.code, [each["why"] for each in first.json["left"]]) == (3, ["failed"])
    assert (second.code, second.json["alreadyWaiting"]) == (0, ["all/1"])
    assert (topic.ids("all"), topic.dead("all")) == (["k-1"], [])


@pytest.mark.parametrize("taken", [False, True], ids=["the copy waits", "a consumer has taken the copy"])
@pytest.mark.slow
@pytest.mark.weekly
async def test_killed_before_the_topic_has_answered_the_dead_letter_stays(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, impatient: None, taken: bool
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)
    await inject(topic.servicebus.admin_port, kind="delay-ack", entity=TOPIC, count=1, ms=60_000)
    async with relay_process(environment, "deadletters", "resubmit", "--all", "--yes") as process:
        await asyncio.wait_for(until(lambda: topic.ids("all")), WATCHDOG_S)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert topic.dead("all") == ["k-1"]
    topic.free("all")
    if taken:
        topic.complete("all", "k")

    again = await resubmit(environment, "--all")

    if taken:
        # The topic drops the second copy, and says nothing; the event was delivered.
        assert (again.code, [each["why"] for each in again.json["left"]]) == (1, ["unseen"])
        assert (topic.ids("all"), topic.dead("all")) == ([], ["k-1"])
    else:
        assert (again.code, again.json["alreadyWaiting"]) == (0, ["all/1"])
        assert (topic.ids("all"), topic.dead("all")) == (["k-1"], [])


async def test_killed_while_it_waits_for_a_session_nothing_was_sent(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)
    async with (
        ServiceBusClient.from_connection_string(topic.servicebus.connection_string) as client,
        client.get_subscription_receiver(TOPIC, "all", session_id="k"),
        relay_process(environment, "deadletters", "resubmit", "--all", "--yes") as process,
    ):
        await asyncio.wait_for(until(lambda: topic.counts("all").locked), WATCHDOG_S)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    assert (topic.ids("all"), topic.dead("all")) == ([], ["k-1"])


async def test_ended_between_the_copy_and_the_removal_the_next_run_removes(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)

    class Ended(BaseException):
        pass

    async def end(*_: object) -> bool:
        raise Ended

    with monkeypatch.context() as patched:
        patched.setattr(DeadLetterQueue, "complete", end)
        with pytest.raises(BaseExceptionGroup):
            await resubmit(environment, "--all")
    assert (topic.ids("all"), topic.dead("all")) == (["k-1"], ["k-1"])

    again = await resubmit(environment, "--all")

    assert (again.code, again.json["alreadyWaiting"]) == (0, ["all/1"])
    assert (topic.ids("all"), topic.dead("all")) == (["k-1"], [])


async def test_a_lock_that_is_lost_after_the_copy_was_seen_is_taken_again(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.publish(event("k", 1), event("k", 2))
    topic.dead_letter("all", "k", count=2)
    now(clock)
    complete = DeadLetterQueue.complete
    lost: list[str] = []

    async def complete_late(queue: DeadLetterQueue, locked: Any) -> bool:
        if not lost:
            lost.append(locked.letter.name)
            topic.free("all")
        return await complete(queue, locked)

    monkeypatch.setattr(DeadLetterQueue, "complete", complete_late)
    run = await resubmit(environment, "--all")

    assert lost == ["all/1"]
    assert (run.code, run.json["resubmitted"]) == (0, ["all/1", "all/2"])
    assert (topic.ids("all"), topic.dead("all")) == (["k-1", "k-2"], [])


@pytest.mark.slow
@pytest.mark.weekly
async def test_locks_are_renewed_while_a_consumer_keeps_its_session(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters = topic.outlet("all").dead_letters
    dead_letters.settings = replace(dead_letters.settings, lock_ms=6_000)
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)
    complete, in_time = DeadLetterQueue.complete, []

    async def note(queue: DeadLetterQueue, locked: Any) -> bool:
        in_time.append(await complete(queue, locked))
        return in_time[-1]

    monkeypatch.setattr(DeadLetterQueue, "complete", note)
    async with ServiceBusClient.from_connection_string(topic.servicebus.connection_string) as client:
        consumer = client.get_subscription_receiver(TOPIC, "all", session_id="k")
        await consumer.__aenter__()
        running = asyncio.create_task(resubmit(environment, "--all"))
        await asyncio.wait_for(until(lambda: topic.counts("all").locked), WATCHDOG_S)
        # Longer than the lock, from whenever it began.
        await asyncio.sleep(6.5)
        await consumer.close()
        run = await running

    assert (run.code, run.json["resubmitted"], in_time) == (0, ["all/1"], [True])


async def test_the_topic_may_not_be_listed_and_every_other_subscription_is_named_so(
    environment: dict[str, str], topic: Topic, clock: TurnableClock
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    now(clock)
    limited = topic.without_manage

    refused = await relay_command(limited, "deadletters", "resubmit", "all/1", typed="no\n")

    assert refused.code == 1
    assert "again, to every other subscription of the topic, which cannot be listed" in refused.err
    assert topic.dead("all") == ["k-1"]


@pytest.mark.parametrize("edges", [7])
async def test_a_broker_that_does_its_worst_loses_and_repeats_nothing(
    environment: dict[str, str], topic: Topic, clock: TurnableClock, edges: int
) -> None:
    for number in range(1, 21):
        topic.publish(*(event(key, number) for key in ("k", "l")))
    for key in ("k", "l"):
        topic.dead_letter("all", key, count=20)
    now(clock)

    run = await resubmit(environment, "--all")

    assert run.code == 0, run.out
    waiting = topic.ids("all")
    assert [each for each in waiting if each and each.startswith("k-")] == [f"k-{n}" for n in range(1, 21)]
    assert (len(waiting), topic.dead("all")) == (40, [])
