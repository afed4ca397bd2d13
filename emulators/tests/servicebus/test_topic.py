"""Topics: duplicates, copies for subscriptions, refusals."""

from __future__ import annotations

import pytest

from emulators.tests.servicebus.fakes import FakeClock, a_message
from outbox_emulators.servicebus.duplicates import DuplicateHistory
from outbox_emulators.servicebus.ends import Refusal
from outbox_emulators.servicebus.entity_types import (
    DuplicateDetection,
    Receiving,
    Sending,
    SubscriptionEntity,
    TopicEntity,
)
from outbox_emulators.servicebus.errors import EntityDisabled, MessageNotFound, NotAllowed, Refused
from outbox_emulators.servicebus.filters import CorrelationFilter, Rule
from outbox_emulators.servicebus.message import Property
from outbox_emulators.servicebus.status import Status
from outbox_emulators.servicebus.topic import Topic

WINDOW_MS = 10_000
LABELLED = (Rule("r", CorrelationFilter({Property.SUBJECT: "L"})),)


def a_topic(clock: FakeClock, *, partitioned: bool = False) -> Topic:
    subscriptions = (
        SubscriptionEntity("all"),
        SubscriptionEntity("labelled", rules=LABELLED),
        SubscriptionEntity("chats", Receiving(requires_session=True)),
    )
    sending = Sending(DuplicateDetection(WINDOW_MS), partitioned)
    return Topic(TopicEntity("t", sending, None, subscriptions), clock.timers)


def held_by(topic: Topic, name: str) -> list[str | None]:
    [found] = [each.outlet.messages for each in topic.subscriptions if each.name == name]
    return [entry.message.message_id for entry in found.peek(0, 100)]


def test_a_duplicate_is_accepted_and_dropped(clock: FakeClock) -> None:
    topic = a_topic(clock)

    topic.publish([a_message(message_id="1"), a_message(message_id="1"), a_message(message_id="2")])

    assert held_by(topic, "all") == ["1", "2"]
    assert (topic.inlet.counts.accepted, topic.inlet.counts.duplicates) == (3, 1)


def test_a_duplicate_is_detected_for_the_length_of_the_window_from_the_first(clock: FakeClock) -> None:
    topic = a_topic(clock)
    topic.publish([a_message(message_id="1")])

    clock.advance(WINDOW_MS - 1)
    topic.publish([a_message(message_id="1")])
    assert held_by(topic, "all") == ["1"]
    clock.advance(1)
    topic.publish([a_message(message_id="1")])

    assert held_by(topic, "all") == ["1", "1"]


def test_without_partitions_the_same_id_in_two_sessions_is_a_duplicate(clock: FakeClock) -> None:
    topic = a_topic(clock)

    topic.publish([a_message(message_id="1", session_id="a")])
    topic.publish([a_message(message_id="1", session_id="b")])

    assert held_by(topic, "all") == ["1"]


def test_with_partitions_it_is_not(clock: FakeClock) -> None:
    topic = a_topic(clock, partitioned=True)

    topic.publish([a_message(message_id="1", session_id="a")])
    topic.publish([a_message(message_id="1", partition_key="b")])
    topic.publish([a_message(message_id="1", session_id="a")])

    assert held_by(topic, "all") == ["1", "1"]


def test_the_history_is_bounded_by_the_window(clock: FakeClock) -> None:
    history = DuplicateHistory(WINDOW_MS, lambda: clock.now_ms)
    for number in range(1_000):
        history.is_new(number)
        clock.advance(100)

    assert len(history) <= WINDOW_MS // 100


def test_a_window_made_shorter_holds_for_what_comes_after(clock: FakeClock) -> None:
    history = DuplicateHistory(WINDOW_MS, lambda: clock.now_ms)
    history.is_new("long")
    history.window_ms = WINDOW_MS // 10
    history.is_new("short")

    clock.advance(WINDOW_MS // 10)

    assert [history.is_new(key) for key in ("long", "short")] == [False, True]


def test_a_batch_on_a_partitioned_topic_must_have_one_key(clock: FakeClock) -> None:
    topic = a_topic(clock, partitioned=True)

    with pytest.raises(NotAllowed, match="distinct SessionId or PartitionKey"):
        topic.publish([a_message(session_id="a"), a_message(session_id="b")])


def test_a_subscription_takes_what_its_rules_let_through(clock: FakeClock) -> None:
    topic = a_topic(clock)

    topic.publish([a_message(message_id="1", subject="L"), a_message(message_id="2", subject="M")])

    assert held_by(topic, "labelled") == ["1"]


def test_a_message_without_session_is_dead_lettered_by_a_subscription_that_requires_one(clock: FakeClock) -> None:
    topic = a_topic(clock)

    topic.publish([a_message(message_id="1")])

    [dead] = topic.subscriptions[2].outlet.dead_letters.peek(0, 10)
    assert dead.message.application_properties["DeadLetterReason"] == "Session ID is null"
    assert held_by(topic, "all") == ["1"]


def test_a_refused_message_takes_its_whole_batch_with_it(clock: FakeClock) -> None:
    topic = a_topic(clock)
    topic.inlet.refusals.append(Refusal("bad", "amqp:not-allowed"))

    with pytest.raises(Refused):
        topic.publish([a_message(message_id="good"), a_message(message_id="bad")])

    assert held_by(topic, "all") == []
    topic.publish([a_message(message_id="good")])
    assert held_by(topic, "all") == ["good"]


@pytest.mark.parametrize("status", [Status.DISABLED, Status.SEND_DISABLED])
def test_a_disabled_topic_takes_nothing(clock: FakeClock, status: Status) -> None:
    topic = a_topic(clock)
    topic.inlet.status = status

    with pytest.raises(EntityDisabled):
        topic.publish([a_message()])


def test_scheduled_messages_wait_in_the_topic(clock: FakeClock) -> None:
    topic = a_topic(clock)
    numbers = topic.publish([a_message(message_id=each, scheduled_ms=clock.now_ms + 1_000) for each in ("1", "2")])
    assert [entry.message.message_id for entry in topic.peek(0, 10)] == ["1", "2"]

    topic.cancel_scheduled(numbers[:1])
    clock.advance(1_000)

    assert held_by(topic, "all") == ["2"]
    with pytest.raises(MessageNotFound):
        topic.cancel_scheduled(numbers[1:])
