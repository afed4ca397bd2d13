"""The broker's record of the latest messages, on a stopped clock."""

from __future__ import annotations

import pytest

from emulators.tests.servicebus.fakes import START_MS, FakeClock, Receiver, a_message
from outbox_emulators.servicebus.journal import Fate, Journal
from outbox_emulators.servicebus.queue import MessageQueue
from outbox_emulators.servicebus.queue_settings import QueueSettings
from outbox_emulators.servicebus.session_queue import SessionQueue


@pytest.fixture(params=[MessageQueue, SessionQueue])
def queue(request: pytest.FixtureRequest, clock: FakeClock) -> MessageQueue:
    dead = MessageQueue(QueueSettings("q/$DeadLetterQueue", 1_000, None, None, False), clock.timers)
    made: MessageQueue = request.param(QueueSettings("q", 1_000, 2, None, True), clock.timers, dead)
    return made


def enqueue(queue: MessageQueue, *ids: str, ttl_ms: int | None = None) -> None:
    for each in ids:
        queue.enqueue(a_message(message_id=each, session_id="s", ttl_ms=ttl_ms))


class Consumer:
    """Takes messages of the queue, or of its only session."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue, self.receiver = queue, Receiver()
        self.session = queue.accept("s", self.receiver) if isinstance(queue, SessionQueue) else None

    def take(self, *, delete: bool = False) -> object:
        if isinstance(self.queue, SessionQueue) and self.session is not None:
            taken = self.queue.take_from(self.session, self.receiver, delete=delete)
        else:
            taken = self.queue.take(self.receiver, delete=delete)
        assert taken is not None
        return taken[1].token if taken[1] else None


def fates(queue: MessageQueue) -> dict[str | None, tuple[str, int]]:
    return {each.message_id: (each.fate.value, each.deliveries) for each in queue.journal.after(0)}


def test_it_has_what_became_of_each_message(queue: MessageQueue, clock: FakeClock) -> None:
    enqueue(queue, "completed", "deleted", "poison", "waiting")
    consumer = Consumer(queue)
    token = consumer.take()
    clock.advance(10)
    queue.complete(token)  # type: ignore[arg-type]
    consumer.take(delete=True)
    queue.abandon(consumer.take())  # type: ignore[arg-type]
    queue.abandon(consumer.take())  # type: ignore[arg-type]

    assert fates(queue) == {
        "completed": ("completed", 1),
        "deleted": ("completed", 1),
        "poison": ("dead-lettered", 2),
        "waiting": ("waiting", 0),
    }
    assert queue.journal.completed == 2
    stories = {each.message_id: each for each in queue.journal.after(0, "s")}
    assert (stories["completed"].accepted_ms, stories["completed"].ended_ms) == (START_MS, START_MS + 10)
    assert stories["poison"].reason == "MaxDeliveryCountExceeded"
    assert queue.journal.after(0, "another") == []


def test_an_expired_message_is_dead_lettered(queue: MessageQueue, clock: FakeClock) -> None:
    enqueue(queue, "old", ttl_ms=5)

    clock.advance(6)

    assert fates(queue) == {"old": ("dead-lettered", 0)}
    assert queue.journal.after(0)[0].reason == "TTLExpiredException"


def test_only_what_changed_since_is_answered_in_the_order_of_the_changes(queue: MessageQueue) -> None:
    enqueue(queue, "a", "b", "c")
    before = queue.journal.change

    queue.complete(Consumer(queue).take())  # type: ignore[arg-type]
    enqueue(queue, "d")

    assert [each.message_id for each in queue.journal.after(before)] == ["a", "d"]
    assert [each.message_id for each in queue.journal.after(0)] == ["b", "c", "a", "d"]
    assert queue.journal.after(queue.journal.change) == []


def test_it_forgets_the_messages_that_changed_longest_ago(queue: MessageQueue) -> None:
    queue.journal = Journal(limit=2)
    enqueue(queue, "a", "b", "c")

    assert [each.message_id for each in queue.journal.after(0)] == ["b", "c"]
    queue.complete(Consumer(queue).take())  # type: ignore[arg-type]
    assert queue.journal.completed == 1
    assert {each.fate for each in queue.journal.after(0)} == {Fate.WAITING}
