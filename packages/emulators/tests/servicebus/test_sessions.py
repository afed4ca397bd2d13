"""A queue that requires sessions, on a stopped clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outbox_relay.emulators.servicebus.errors import MessageNotFound, SessionLockLost
from outbox_relay.emulators.servicebus.message_store import Counts
from outbox_relay.emulators.servicebus.queue import MessageQueue, QueueSettings
from outbox_relay.emulators.servicebus.session_queue import SessionQueue
from outbox_relay.emulators.servicebus.sessions import Session
from packages.emulators.tests.servicebus.fakes import FakeClock, Receiver, a_message

LOCK_MS = 1_000


@pytest.fixture
def queue(clock: FakeClock) -> SessionQueue:
    dead = MessageQueue(QueueSettings("chats/$DeadLetterQueue", LOCK_MS, None, None, False), clock.timers)
    return SessionQueue(QueueSettings("chats", LOCK_MS, 3, None, False, True), clock.timers, dead)


def send(queue: SessionQueue, *ids: str, session: str = "a") -> None:
    for each in ids:
        queue.enqueue(a_message(message_id=each, session_id=session))


def take_all(queue: SessionQueue, session: Session, receiver: Receiver) -> list[str | None]:
    found = []
    while (taken := queue.take_from(session, receiver)) is not None:
        found.append(taken[0].message.message_id)
    return found


def test_the_next_session_is_the_free_one_that_has_waited_longest(queue: SessionQueue) -> None:
    for name in "abc":
        send(queue, name, session=name)
    queue.accept("a", Receiver())

    accepted = [queue.accept_next(Receiver()) for _ in range(3)]

    assert [each and each.id for each in accepted] == ["b", "c", None]


def test_a_receiver_that_waits_is_granted_the_next_session_with_a_message(queue: SessionQueue) -> None:
    first, second, gone = Receiver(), Receiver(), Receiver()
    queue.accept_next(gone)
    queue.accept_next(first)
    queue.accept_next(second)
    queue.stop_waiting(gone)

    send(queue, "1", "2", session="a")
    send(queue, "3", session="b")

    assert (first.granted, second.granted, gone.granted) == (["a"], ["b"], [])


def test_a_session_left_with_messages_goes_to_whoever_waits(queue: SessionQueue) -> None:
    receiver, waiter = Receiver(), Receiver()
    send(queue, "1", "2")
    session = queue.accept("a", receiver)
    queue.take_from(session, receiver)
    queue.accept_next(waiter)

    queue.close_session(session, receiver)

    assert waiter.granted == ["a"]
    assert take_all(queue, session, waiter) == ["1", "2"]


def test_a_lost_session_cannot_be_settled_renewed_or_given_a_state(queue: SessionQueue, clock: FakeClock) -> None:
    receiver = Receiver()
    send(queue, "1")
    session = queue.accept("a", receiver)
    taken = queue.take_from(session, receiver)
    assert taken is not None
    assert taken[1] is not None
    clock.advance(LOCK_MS)

    with pytest.raises(SessionLockLost):
        queue.complete(taken[1].token)
    with pytest.raises(SessionLockLost):
        queue.renew_session_lock("a", [receiver])
    with pytest.raises(SessionLockLost):
        queue.set_state("a", [receiver], b"x")


def test_a_renewed_session_is_kept(queue: SessionQueue, clock: FakeClock) -> None:
    receiver = Receiver()
    queue.accept("a", receiver)

    clock.advance(LOCK_MS - 1)
    until = queue.renew_session_lock("a", [receiver])
    clock.advance(LOCK_MS - 1)

    assert until == clock.now_ms + 1
    assert receiver.lost == 0


def test_an_abandoned_message_comes_back_first(queue: SessionQueue) -> None:
    receiver = Receiver()
    send(queue, "1", "2", "3")
    session = queue.accept("a", receiver)
    taken = queue.take_from(session, receiver)
    assert taken is not None
    assert taken[1] is not None

    queue.abandon(taken[1].token)

    assert take_all(queue, session, receiver) == ["1", "2", "3"]


def test_the_state_of_a_session_outlives_its_messages_and_receivers(queue: SessionQueue) -> None:
    receiver = Receiver()
    session = queue.accept("a", receiver)
    queue.set_state("a", [receiver], b"so far")
    queue.close_session(session, receiver)

    queue.accept("a", receiver)

    assert queue.get_state("a", [receiver]) == b"so far"
    assert queue.session_ids() == ["a"]
    assert queue.session_ids(state_set_after_ms=0) == ["a"]


def test_a_session_with_nothing_left_is_dropped(queue: SessionQueue) -> None:
    receiver = Receiver()
    send(queue, "1")
    session = queue.accept("a", receiver)
    queue.take_from(session, receiver, delete=True)
    queue.close_session(session, receiver)

    assert queue.session_counts() == {}
    assert queue.accept_next(Receiver()) is None


def test_deferred_messages_belong_to_their_session(queue: SessionQueue) -> None:
    receiver = Receiver()
    send(queue, "1")
    session = queue.accept("a", receiver)
    taken = queue.take_from(session, receiver)
    assert taken is not None
    assert taken[1] is not None
    queue.defer(taken[1].token)
    number = taken[0].sequence_number

    with pytest.raises(MessageNotFound):
        queue.receive_deferred([number], session_id="b")
    assert len(queue.receive_deferred([number], session_id="a")) == 1


def test_the_holder_is_woken_by_a_message_for_its_session_and_by_no_other(queue: SessionQueue) -> None:
    receiver = Receiver()
    queue.accept("a", receiver)

    send(queue, "1", session="b")
    assert receiver.woken == 0
    send(queue, "2", session="a")

    assert receiver.woken == 1


def test_a_lock_made_shorter_ends_before_longer_ones_of_earlier(queue: SessionQueue, clock: FakeClock) -> None:
    long, short = Receiver(), Receiver()
    queue.accept("a", long)
    queue.settings = replace(queue.settings, lock_ms=LOCK_MS // 10)
    queue.accept("b", short)

    clock.advance(LOCK_MS // 10 + LOCK_MS // 40)

    assert (long.lost, short.lost) == (0, 1)


def test_a_receiver_that_waits_exactly_as_long_as_its_lock_lasts_does_not_lose_it(
    queue: SessionQueue, clock: FakeClock
) -> None:
    receiver = Receiver()
    session = queue.accept("a", receiver)

    clock.advance(LOCK_MS)
    assert (receiver.lost, session.holder) == (0, receiver)

    send(queue, "1")
    assert queue.take_from(session, receiver) is None  # its lock is over: no message is locked under it
    clock.advance(LOCK_MS // 4)
    assert (receiver.lost, session.holder) == (1, None)
    assert queue.accept_next(Receiver()) is session


def test_a_lock_under_which_messages_are_held_ends_on_time(queue: SessionQueue, clock: FakeClock) -> None:
    receiver = Receiver()
    send(queue, "1")
    session = queue.accept("a", receiver)
    take_all(queue, session, receiver)

    clock.advance(LOCK_MS)

    assert receiver.lost == 1


def test_a_cleared_queue_has_no_sessions(queue: SessionQueue) -> None:
    receiver = Receiver()
    send(queue, "1")
    session = queue.accept("a", receiver)
    queue.set_state("a", [receiver], b"state")
    queue.close_session(session, receiver)

    queue.clear()

    assert (queue.session_ids(), queue.counts()) == ([], Counts())
    assert queue.accept_next(receiver) is None
    send(queue, "2", session="b")
    assert receiver.granted == ["b"]
