"""A queue without sessions, on a stopped clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from outbox_relay.emulators.servicebus.entry import Entry, State
from outbox_relay.emulators.servicebus.errors import MessageLockLost, MessageNotFound
from outbox_relay.emulators.servicebus.message_store import Counts
from outbox_relay.emulators.servicebus.queue import MessageQueue, QueueSettings
from packages.emulators.tests.servicebus.fakes import FakeClock, Receiver, a_message

LOCK_MS = 1_000

QueueMaker = Callable[..., MessageQueue]


@pytest.fixture
def make_queue(clock: FakeClock) -> QueueMaker:
    def make(**settings: object) -> MessageQueue:
        given: dict[str, Any] = {
            "path": "orders",
            "lock_ms": LOCK_MS,
            "max_delivery_count": 3,
            "default_ttl_ms": None,
            "dead_letter_on_expiry": True,
        }
        dead = QueueSettings("orders/$DeadLetterQueue", LOCK_MS, None, None, False)
        return MessageQueue(QueueSettings(**{**given, **settings}), clock.timers, MessageQueue(dead, clock.timers))

    return make


@pytest.fixture
def queue(make_queue: QueueMaker) -> MessageQueue:
    return make_queue()


def take(queue: MessageQueue, receiver: Receiver | None = None) -> tuple[str | None, bytes] | None:
    taken = queue.take(receiver or Receiver())
    if taken is None:
        return None
    entry, lock = taken
    assert lock is not None
    return entry.message.message_id, lock.token


def held(queue: MessageQueue) -> bytes:
    taken = take(queue)
    assert taken is not None
    return taken[1]


def dead_letters(queue: MessageQueue) -> list[tuple[str | None, object]]:
    assert queue.dead_letters is not None
    return [
        (entry.message.message_id, entry.message.application_properties.get("DeadLetterReason"))
        for entry in queue.dead_letters.peek(0, 100)
    ]


def send(queue: MessageQueue, *ids: str, **fields: object) -> list[Entry]:
    return [queue.enqueue(a_message(message_id=each, **fields)) for each in ids]


def test_a_lock_that_expires_gives_the_message_back(queue: MessageQueue, clock: FakeClock) -> None:
    [entry] = send(queue, "1")
    token = held(queue)

    clock.advance(LOCK_MS - 1)
    assert take(queue) is None
    clock.advance(1)

    with pytest.raises(MessageLockLost):
        queue.complete(token)
    assert entry.delivery_count == 1
    assert take(queue)


def test_a_renewed_lock_lasts_from_its_renewal(queue: MessageQueue, clock: FakeClock) -> None:
    send(queue, "1")
    token = held(queue)

    clock.advance(LOCK_MS - 100)
    until = queue.renew_lock(token)
    clock.advance(LOCK_MS - 100)

    assert until == clock.now_ms + 100
    queue.complete(token)


def test_a_deferred_message_is_received_by_its_number_only(queue: MessageQueue) -> None:
    [entry] = send(queue, "1")
    queue.defer(held(queue), {"step": 2})

    assert take(queue) is None
    [(received, lock)] = queue.receive_deferred([entry.sequence_number])
    assert received.message.application_properties == {"step": 2}
    with pytest.raises(MessageNotFound):
        queue.receive_deferred([entry.sequence_number])
    assert lock is not None
    queue.abandon(lock.token)
    assert queue.counts() == Counts(deferred=1)
    queue.receive_deferred([entry.sequence_number], delete=True)
    assert queue.counts() == Counts()


def test_deferred_messages_are_received_all_or_none(queue: MessageQueue) -> None:
    [entry] = send(queue, "1")
    queue.defer(held(queue))

    with pytest.raises(MessageNotFound):
        queue.receive_deferred([entry.sequence_number, 99])

    assert queue.counts() == Counts(deferred=1)


def test_messages_past_their_time_to_live_are_dead_lettered_one_after_another(
    queue: MessageQueue, clock: FakeClock
) -> None:
    send(queue, "short", ttl_ms=500)
    send(queue, "long", ttl_ms=600)

    clock.advance(499)
    assert dead_letters(queue) == []
    clock.advance(1)
    assert dead_letters(queue) == [("short", "TTLExpiredException")]
    clock.advance(100)

    assert [each[0] for each in dead_letters(queue)] == ["short", "long"]
    assert take(queue) is None


def test_without_dead_lettering_on_expiry_it_is_dropped(make_queue: QueueMaker, clock: FakeClock) -> None:
    queue = make_queue(dead_letter_on_expiry=False)
    send(queue, "1", ttl_ms=500)

    clock.advance(500)

    assert (queue.counts(), dead_letters(queue)) == (Counts(), [])


def test_the_entitys_time_to_live_is_the_longest_a_message_can_have(
    make_queue: QueueMaker, clock: FakeClock
) -> None:
    queue = make_queue(default_ttl_ms=1_000)
    send(queue, "1", ttl_ms=5_000)
    send(queue, "2")

    clock.advance(1_000)

    assert [each[0] for each in dead_letters(queue)] == ["1", "2"]


def test_a_locked_message_does_not_expire_until_its_lock_ends(queue: MessageQueue, clock: FakeClock) -> None:
    send(queue, "1", ttl_ms=500)
    token = held(queue)

    clock.advance(600)
    assert dead_letters(queue) == []
    queue.abandon(token)

    assert dead_letters(queue) == [("1", "TTLExpiredException")]


def test_a_scheduled_message_comes_at_its_time_with_a_new_number(queue: MessageQueue, clock: FakeClock) -> None:
    [scheduled] = send(queue, "later", scheduled_ms=clock.now_ms + 1_000)
    number = scheduled.sequence_number
    send(queue, "now")

    assert [entry.state for entry in queue.peek(0, 10)] == [State.SCHEDULED, State.ACTIVE]
    queue.complete(held(queue))
    assert take(queue) is None
    clock.advance(1_000)

    assert take(queue)[0] == "later"  # type: ignore[index]
    assert scheduled.sequence_number > number
    assert scheduled.enqueued_ms == clock.now_ms


def test_a_cancelled_message_never_comes(queue: MessageQueue, clock: FakeClock) -> None:
    [one, two] = send(queue, "1", "2", scheduled_ms=clock.now_ms + 1_000)

    with pytest.raises(MessageNotFound):
        queue.cancel_scheduled([one.sequence_number, 99])
    queue.cancel_scheduled([one.sequence_number])
    clock.advance(1_000)

    assert take(queue)[0] == "2"  # type: ignore[index]
    with pytest.raises(MessageNotFound):
        queue.cancel_scheduled([two.sequence_number])


def test_a_waiting_receiver_is_woken_by_the_next_message_and_one_by_each(queue: MessageQueue) -> None:
    first, second = Receiver(), Receiver()
    queue.take(first)
    queue.take(second)

    send(queue, "1")
    assert (first.woken, second.woken) == (1, 0)
    send(queue, "2")
    assert (first.woken, second.woken) == (1, 1)


def test_a_receiver_that_leaves_passes_its_turn_on(queue: MessageQueue) -> None:
    first, second = Receiver(), Receiver()
    queue.take(first)
    queue.take(second)
    send(queue, "1")

    queue.leave(first)

    assert second.woken == 1


def test_an_unknown_lock_is_lost(queue: MessageQueue) -> None:
    for settle in (queue.complete, queue.abandon, queue.defer, queue.dead_letter, queue.release, queue.renew_lock):
        with pytest.raises(MessageLockLost):
            settle(bytes(16))


def test_expiries_of_messages_long_gone_do_not_pile_up(make_queue: QueueMaker) -> None:
    queue = make_queue(default_ttl_ms=3_600_000)
    for _ in range(5_000):
        send(queue, "x")
        queue.complete(held(queue))

    assert len(queue._expiries) <= 1_001


def test_a_lock_made_shorter_ends_before_longer_ones_of_earlier(queue: MessageQueue, clock: FakeClock) -> None:
    for each in ("1", "2", "3"):
        queue.enqueue(a_message(message_id=each))
    first = held(queue)
    queue.settings = replace(queue.settings, lock_ms=LOCK_MS // 10)
    second = held(queue)
    third = held(queue)

    clock.advance(LOCK_MS // 10)

    assert queue.locked_entry(first)
    for ended in (second, third):
        with pytest.raises(MessageLockLost):
            queue.locked_entry(ended)


def test_the_size_is_that_of_what_is_held(queue: MessageQueue) -> None:
    large, small = a_message(body=b"x" * 1000), a_message(body=b"x")
    queue.enqueue(large)
    queue.enqueue(small)
    assert queue.size_bytes == large.size + small.size

    queue.complete(held(queue))
    assert queue.size_bytes == small.size
    queue.dead_letter(held(queue), "reason")
    assert queue.dead_letters is not None
    assert (queue.size_bytes, queue.dead_letters.size_bytes > small.size) == (0, True)


def test_a_cleared_queue_is_empty_and_goes_on(queue: MessageQueue, clock: FakeClock) -> None:
    queue.enqueue(a_message(message_id="1", ttl_ms=500))
    queue.enqueue(a_message(message_id="2", scheduled_ms=clock.now_ms + 500))
    held(queue)

    queue.clear()
    clock.advance(2 * LOCK_MS)

    assert (queue.counts(), queue.size_bytes, take(queue)) == (Counts(), 0, None)
    assert queue.enqueue(a_message(message_id="3")).sequence_number == 3
    assert take(queue) is not None
