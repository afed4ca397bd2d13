"""One partition key's way: batches within their limits, in order, and what a refusal or a lost answer leads to."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from azure.servicebus.exceptions import (
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from relay.config.settings import OnPoison
from relay.core.errors import ConfigurationError, DoubtfulRefusalError, RetryableError
from relay.core.events import Reason
from relay.core.fence import Clearance
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge
from relay.servicebus.key_sender import PAUSES_S
from tests.fuzz.service import refusal
from tests.support import virtual_time
from tests.support.telemetry import installed
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import LIMIT, FakeTopic, event, events

CUT = ServiceBusConnectionError(message="cut")
FINAL = Judge(needs_evidence=False)
FINAL_IN_ORDER = Judge(OnPoison.PARK, needs_evidence=False)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without their time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", record)
    return made


async def outcome_of(topic: FakeTopic, *ids: str, size: int = 0, **changes: Any) -> KeyOutcome:
    rules = {"judge": FINAL} | changes
    (outcome,) = await topic.publisher().publish(events(*ids, size=size), **rules)
    assert outcome.published + outcome.unsent + len(outcome.rejected) + len(outcome.held_back) == len(ids)
    return outcome


async def test_one_event_goes_alone_and_several_go_together() -> None:
    topic = FakeTopic()

    one, several = await outcome_of(topic, "a"), await outcome_of(topic, "b", "c")

    assert topic.transfers == [["a"], ["b", "c"]]
    assert topic.batched == [False, True]
    assert (one.published, one.sends, several.published, several.sends) == (1, 1, 2, 1)


async def test_batches_are_filled_up_to_the_limit_and_leave_in_order() -> None:
    topic = FakeTopic(limit=4_000)

    outcome = await outcome_of(topic, *(str(number) for number in range(20)), size=800)

    assert topic.ids() == [str(number) for number in range(20)]
    assert {len(ids) for ids in topic.transfers} == {4}
    assert (outcome.published, outcome.sends) == (20, 5)


@pytest.mark.parametrize("letter", ["x", "美", "é"])
async def test_a_batch_with_long_keys_stays_below_the_limit(letter: str) -> None:
    key = letter * 128
    source = {key: [event(f"{number:03}" + letter * 125, key) for number in range(8)]}
    # The last message of a batch leaves now much room, now little.
    for limit in range(7_000, 8_800, 60):
        topic = FakeTopic(limit=limit)

        (outcome,) = await topic.publisher().publish(source)

        assert outcome.published == 8
        assert max(size for size, batched in zip(topic.sizes, topic.batched, strict=True) if batched) <= limit


async def test_what_fits_no_batch_goes_alone_in_its_place() -> None:
    topic = FakeTopic(limit=2_000, message_limit=10_000)
    source = {"k": [event("a"), event("b"), event("large", size=5_000), event("c"), event("d")]}

    (outcome,) = await topic.publisher().publish(source)

    assert topic.transfers == [["a", "b"], ["large"], ["c", "d"]]
    assert (outcome.published, outcome.rejected) == (5, [])


async def test_a_large_event_first_and_last_goes_alone_too() -> None:
    topic = FakeTopic(limit=2_000, message_limit=10_000)
    source = {"k": [event("first", size=5_000), event("a"), event("last", size=5_000)]}

    (outcome,) = await topic.publisher().publish(source)

    assert topic.transfers == [["first"], ["a"], ["last"]]
    assert (outcome.published, outcome.error) == (3, None)


async def size_of(size: int) -> int:
    topic = FakeTopic(limit=10 * LIMIT)
    await topic.publisher().publish({"k": [event("a", size=size)]})
    return topic.sizes[0]


async def test_a_message_of_just_the_links_limit_is_sent_and_one_byte_more_is_not() -> None:
    limit = await size_of(50_000)
    fits, larger = (
        FakeTopic(message_limit=limit, limit=1_000),
        FakeTopic(message_limit=limit - 1, limit=1_000),
    )

    assert (await outcome_of(fits, "a", size=50_000)).published == 1
    outcome = await outcome_of(larger, "a", size=50_000)

    (rejected,) = outcome.rejected
    assert (rejected.id, rejected.reason, rejected.condition) == ("a", Reason.MESSAGE_TOO_LARGE, None)
    assert f"{limit} bytes, and the topic takes {limit - 1}" in rejected.detail
    assert larger.transfers == []


async def test_properties_count_towards_what_is_too_large() -> None:
    topic = FakeTopic(message_limit=30_000, limit=1_000)
    source = {"k": [event("a", size=17_000, data={"action": "x" * 14_900, "filling": "x" * 17_000})]}

    (outcome,) = await topic.publisher().publish(source)

    assert [each.reason for each in outcome.rejected] == [Reason.MESSAGE_TOO_LARGE]
    assert topic.transfers == []


async def test_a_size_that_the_service_refuses_after_all_is_reported_as_such() -> None:
    outcome = await outcome_of(FakeTopic(by_id={"a": "amqp:link:message-size-exceeded"}), "a")

    (rejected,) = outcome.rejected
    assert rejected.reason is Reason.MESSAGE_TOO_LARGE
    assert rejected.condition == "amqp:link:message-size-exceeded"


@pytest.mark.parametrize("culprit", ["a", "b", "c", "d", "e", "f", "g"])
async def test_a_refused_batch_is_halved_until_the_culprit_stands_alone(culprit: str) -> None:
    topic = FakeTopic(by_id={culprit: "amqp:not-allowed"})

    outcome = await outcome_of(topic, *"abcdefg")

    (rejected,) = outcome.rejected
    assert (rejected.id, rejected.reason) == (culprit, Reason.MESSAGE_REFUSED)
    assert rejected.condition == "amqp:not-allowed"
    assert topic.ids() == [each for each in "abcdefg" if each != culprit]
    assert (outcome.published, outcome.error) == (6, None)
    assert len(topic.transfers) <= 8


@pytest.mark.parametrize("culprit", ["a", "b", "c", "d", "e"])
async def test_what_follows_a_rejected_event_can_be_held_back(culprit: str) -> None:
    topic = FakeTopic(by_id={culprit: "amqp:not-allowed"})

    outcome = await outcome_of(topic, *"abcde", judge=FINAL_IN_ORDER)

    place = "abcde".index(culprit)
    assert topic.ids() == list("abcde"[:place])
    assert [each.id for each in outcome.rejected] == [culprit]
    assert [each.id for each in outcome.held_back] == list("abcde"[place + 1 :])
    assert all(ids[0] <= culprit for ids in topic.transfers)
    # Each refusal ends a link, the last one too: another is opened only where something is still to be sent.
    assert len(topic.links) == sum(culprit in ids for ids in topic.transfers)


async def test_batches_behind_a_rejected_event_are_held_back_too() -> None:
    topic = FakeTopic(limit=2_000, by_id={"b": "amqp:not-allowed"})

    outcome = await outcome_of(topic, *"abcdefg", size=600, judge=FINAL_IN_ORDER)

    assert topic.ids() == ["a"]
    assert [each.id for each in outcome.held_back] == ["c", "d", "e", "f", "g"]
    assert all(ids[0] in "ab" for ids in topic.transfers)
    assert len(topic.links) == sum("b" in ids for ids in topic.transfers)


async def test_an_event_too_large_for_the_link_holds_back_what_follows() -> None:
    topic = FakeTopic(limit=2_000)
    source = {"k": [event("a"), event("large", size=50_000), event("b"), event("c")]}

    (outcome,) = await topic.publisher().publish(source, judge=Judge(OnPoison.PARK))

    assert topic.transfers == [["a"]]
    assert [each.id for each in outcome.held_back] == ["b", "c"]


async def test_the_last_event_too_large_leaves_nothing_unsaid() -> None:
    topic = FakeTopic(limit=2_000)

    (outcome,) = await topic.publisher().publish({"k": [event("a"), event("large", size=50_000)]})

    assert (outcome.published, [each.id for each in outcome.rejected]) == (1, ["large"])


async def test_a_refused_batch_is_taken_apart_in_as_few_transfers_as_halving_needs() -> None:
    topic = FakeTopic(by_id={"a": "amqp:not-allowed"})

    await outcome_of(topic, *"abcdefg")

    assert ["".join(ids) for ids in topic.transfers] == ["abcdefg", "abc", "a", "bc", "defg"]


async def test_half_a_batch_that_fits_none_as_its_first_id_is_long_is_split_on() -> None:
    long = "美" * 128
    source = {"k": [event("a"), event("b"), event(long), event("d")]}
    for limit in range(1_000, 3_000):
        topic = FakeTopic(limit=limit)
        await topic.publisher().publish(source)
        if len(topic.transfers) == 1:
            break

    topic = FakeTopic(limit=limit, by_id={"a": "amqp:not-allowed"})
    (outcome,) = await topic.publisher().publish(source, judge=FINAL)

    assert topic.ids() == ["b", long, "d"]
    assert topic.transfers[-2:] == [[long], ["d"]]
    assert (outcome.published, len(outcome.rejected)) == (3, 1)


async def test_a_batch_is_as_old_as_its_first_event() -> None:
    topic = FakeTopic()
    old, young = event("old", _ts=int(time.time()) - 400), event("young", _ts=int(time.time()))

    (outcome,) = await topic.publisher().publish({"k": [old, young]}, clearance=Clearance(0.0, 300))

    assert (outcome.unsent, topic.transfers) == (2, [])


async def test_a_lost_connection_is_tried_again_on_a_fresh_link_and_then_given_up(pauses: list[float]) -> None:
    topic = FakeTopic(answers=[CUT, CUT, None, CUT, CUT, CUT])
    publisher = topic.publisher(pauses_s=PAUSES_S)

    (first,) = await publisher.publish(events("a", "b"))
    (second,) = await publisher.publish(events("c", "d"))

    assert (first.published, first.error, first.sends) == (2, None, 1)
    assert isinstance(second.error, RetryableError)
    assert (second.published, second.unsent) == (0, 2)
    assert topic.transfers == [["a", "b"]] * 3 + [["c", "d"]] * 3
    assert pauses == [0.2, 0.8, 0.2, 0.8]
    assert len(topic.links) == 5


async def test_a_throttled_service_gets_pauses_ten_times_as_long(pauses: list[float]) -> None:
    topic = FakeTopic(answers=[ServiceBusServerBusyError(message="busy")] * 2)

    (outcome,) = await topic.publisher(pauses_s=PAUSES_S).publish(events("a"))

    assert outcome.published == 1
    assert pauses == [2.0, 8.0]


async def test_throttling_with_an_amqp_condition_is_throttling(pauses: list[float]) -> None:
    busy = ServiceBusServerBusyError(message="busy", error=refusal("com.microsoft:server-busy").inner_exception)
    topic = FakeTopic(answers=[busy, busy, busy])

    (outcome,) = await topic.publisher(pauses_s=PAUSES_S).publish(events("a"))

    assert isinstance(outcome.error, RetryableError)
    assert (outcome.rejected, outcome.unsent) == ([], 1)
    assert pauses == [2.0, 8.0]


async def test_no_pause_outlasts_the_time_for_a_send(pauses: list[float]) -> None:
    topic = FakeTopic(answers=[CUT] * 3)

    (outcome,) = await topic.publisher(pauses_s=(0.2, 5.0), send_timeout_s=5.0).publish(events("a"))

    assert isinstance(outcome.error, RetryableError)
    assert pauses == [0.2]
    assert len(topic.transfers) == 2


async def test_nothing_is_sent_once_the_attempts_time_is_over() -> None:
    topic = FakeTopic()

    (outcome,) = await topic.publisher(attempt_timeout_s=0.0).publish(events("a", "b"))

    assert "RELAY_ATTEMPT_TIMEOUT_S" in str(outcome.error)
    assert (outcome.unsent, topic.transfers) == (2, [])


@pytest.mark.parametrize(("answers_after_s", "published"), [(29, 1), (31, 0)])
def test_a_large_transfer_has_the_time_that_its_bytes_take(answers_after_s: float, published: int) -> None:
    # Less than 20.01 seconds at the slowest rate that counts, besides the ten of any send.
    large = events("a", size=5_000_000)
    topic = FakeTopic(message_limit=100_000_000)
    topic.answers_after_s = answers_after_s

    async def publish() -> tuple[KeyOutcome, float]:
        publisher = topic.publisher(send_timeout_s=10.0, attempt_timeout_s=60.0)
        (outcome,) = await publisher.publish(large)
        took_s = time.monotonic()
        await publisher.close()
        return outcome, took_s

    outcome, took_s = virtual_time.run(publish())

    assert outcome.published == published
    assert took_s == pytest.approx(min(answers_after_s, 30), abs=0.01)


def test_a_send_without_an_answer_ends_with_the_time_it_has() -> None:
    topic = FakeTopic()

    async def attempts() -> None:
        publisher = topic.publisher(send_timeout_s=10.0, attempt_timeout_s=60.0)
        await publisher.publish(events("a"))
        topic.links[0].hangs = True

        began = time.monotonic()
        (outcome,) = await publisher.publish(events("b"))

        assert "RELAY_SEND_TIMEOUT_S" in str(outcome.error)
        assert time.monotonic() - began == 10
        assert (outcome.unsent, topic.ids()) == (1, ["a"])
        await publisher.close()

    virtual_time.run(attempts())


def test_all_tries_of_a_send_have_its_time_together() -> None:
    topic = FakeTopic(answers=[CUT])
    topic.answers_after_s = 6

    async def attempt() -> None:
        publisher = topic.publisher(pauses_s=(1.0, 1.0), send_timeout_s=10.0, attempt_timeout_s=60.0)

        (outcome,) = await publisher.publish(events("a"))

        assert "RELAY_SEND_TIMEOUT_S" in str(outcome.error)
        assert time.monotonic() == 10
        await publisher.close()

    virtual_time.run(attempt())


async def test_a_configuration_error_is_not_tried_again() -> None:
    topic = FakeTopic(answers=[ServiceBusAuthorizationError(message="no")])

    (outcome,) = await topic.publisher().publish(events("a", "b"))

    assert isinstance(outcome.error, ConfigurationError)
    assert len(topic.transfers) == 1


async def test_an_error_that_may_pass_stops_a_batch_whole_until_it_is_to_be_isolated() -> None:
    whole, isolated = (FakeTopic(by_id={"c": "amqp:internal-error"}) for _ in range(2))

    first = await outcome_of(whole, *"abcd")
    second = await outcome_of(isolated, *"abcd", isolate=True)

    assert (first.published, first.unsent, first.blocked_by) == (0, 4, None)
    assert (second.published, second.unsent, second.blocked_by) == (2, 2, "c")
    assert isolated.ids() == ["a", "b"]
    assert isinstance(second.error, RetryableError)


async def test_a_lost_answer_takes_no_batch_apart_even_when_isolating() -> None:
    topic = FakeTopic(answers=[CUT] * 3)

    outcome = await outcome_of(topic, *"abcd", isolate=True)

    assert (outcome.published, outcome.unsent, outcome.blocked_by) == (0, 4, None)
    assert topic.transfers == [["a", "b", "c", "d"]] * 3


async def test_a_single_event_that_the_service_answers_with_an_error_is_named() -> None:
    named, lost = FakeTopic(by_id={"a": "amqp:internal-error"}), FakeTopic(answers=[CUT] * 3)

    assert (await outcome_of(named, "a")).blocked_by == "a"
    assert (await outcome_of(lost, "a")).blocked_by is None


async def test_no_event_is_sent_on_a_clearance_that_has_ended() -> None:
    topic = FakeTopic()

    (outcome,) = await topic.publisher().publish(events("a", "b"), clearance=Clearance(time.time() - 601, 600))

    assert "RELAY_DUPLICATE_WINDOW_S" in str(outcome.error)
    assert (outcome.unsent, topic.transfers) == (2, [])


async def test_an_accepted_transfer_is_counted_with_its_events_and_the_time_it_took() -> None:
    telemetry = installed()
    telemetry.forget()

    await outcome_of(FakeTopic(by_id={"c": "amqp:not-allowed"}), "a", "b", "c")

    counted = telemetry.metrics()
    assert counted.total("relay.events.published") == 2
    assert counted.count("relay.send.duration") == 2
    assert counted.sum("relay.batch.events") == 2
    assert 0 <= counted.sum("relay.send.duration") < WATCHDOG_S


async def test_a_first_refusal_stops_the_key_and_sets_nothing_aside() -> None:
    topic = FakeTopic(by_id={"b": "amqp:not-allowed"})

    outcome = await outcome_of(topic, "a", "b", "c", judge=Judge())

    assert isinstance(outcome.error, DoubtfulRefusalError)
    assert (outcome.rejected, outcome.published, outcome.unsent, outcome.blocked_by) == ([], 1, 2, "b")
    assert topic.ids() == ["a"]


async def test_a_condition_that_comes_and_goes_makes_nothing_poison() -> None:
    topic = FakeTopic(by_id={"a": "amqp:not-allowed", "b": "amqp:not-allowed"})
    publisher = topic.publisher()
    for other in "xy":
        await publisher.publish(events("a", key="one") | events("b", key="two"))
        await publisher.publish(events(other, key="other"))
    del topic.by_id["a"]

    _, after = await publisher.publish(events("a", key="one") | events("b", key="two"))

    assert isinstance(after.error, DoubtfulRefusalError)
    assert topic.ids("one") == ["a"]


async def test_an_event_that_is_set_aside_says_nothing_of_others_any_more() -> None:
    publisher = FakeTopic(by_id={"a": "amqp:not-allowed"}).publisher()
    refused = events("a", key="one")
    for other in "xy":
        await publisher.publish(refused)
        await publisher.publish(events(other, key="other"))

    (outcome,) = await publisher.publish(refused)

    assert [each.reason for each in outcome.rejected] == [Reason.MESSAGE_REFUSED]
    assert not publisher._shared.evidence.wants_repeat(refused["one"][0])


async def test_a_message_larger_than_the_link_takes_needs_no_further_evidence() -> None:
    outcome = await outcome_of(FakeTopic(limit=1_000), "large", size=50_000, judge=Judge())

    assert [each.reason for each in outcome.rejected] == [Reason.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize("size", [0, LIMIT - 1_000])
async def test_where_nothing_else_is_left_to_send_a_repeat_shows_that_the_service_accepts(size: int) -> None:
    topic = FakeTopic(by_id={"b": "amqp:not-allowed"})
    publisher = topic.publisher(duplicate_window_s=600)
    await publisher.publish(events("x", key="other", size=size))

    outcomes = [(await publisher.publish(events("b", "c")))[0] for _ in range(3)]

    assert [outcome.blocked_by for outcome in outcomes[:2]] == ["b", "b"]
    assert ([each.id for each in outcomes[2].rejected], outcomes[2].published) == (["b"], 1)
    # The topic has it once: the repeats are duplicates.
    assert topic.ids("other") == ["x"]
    assert topic.transfers.count(["x"]) == 3


async def test_a_repeat_that_is_refused_is_no_evidence() -> None:
    topic = FakeTopic()
    publisher = topic.publisher(duplicate_window_s=600)
    await publisher.publish(events("x", key="other"))
    topic.by_id = dict.fromkeys("xb", "amqp:not-allowed")

    outcomes = [(await publisher.publish(events("b", "c")))[0] for _ in range(9)]

    assert {type(outcome.error) for outcome in outcomes} == {DoubtfulRefusalError}
    assert topic.ids() == []


async def test_what_the_topic_may_have_forgotten_is_not_repeated() -> None:
    topic = FakeTopic()
    publisher = topic.publisher(duplicate_window_s=0.0)
    await publisher.publish(events("x", key="other"))
    topic.by_id = {"b": "amqp:not-allowed"}

    outcomes = [(await publisher.publish(events("b", "c")))[0] for _ in range(5)]

    assert {type(outcome.error) for outcome in outcomes} == {DoubtfulRefusalError}
    assert topic.transfers.count(["x"]) == 1


async def test_a_message_beyond_the_standard_tier_is_not_kept_to_be_repeated() -> None:
    topic = FakeTopic(limit=4 * LIMIT, by_id={"b": "amqp:not-allowed"})
    publisher = topic.publisher(duplicate_window_s=600)
    await publisher.publish(events("x", key="other", size=LIMIT))

    outcomes = [(await publisher.publish(events("b", "c")))[0] for _ in range(5)]

    assert {type(outcome.error) for outcome in outcomes} == {DoubtfulRefusalError}
    assert topic.transfers.count(["x"]) == 1


async def test_keys_in_doubt_share_a_repeat() -> None:
    topic = FakeTopic(by_id=dict.fromkeys("abcdef", "amqp:not-allowed"))
    publisher = topic.publisher(duplicate_window_s=600, senders=8)
    doubted = {name: [event(name, name)] for name in "abcdef"}
    sound = {f"k{number}": [event(f"s{number}", f"k{number}")] for number in range(10)}
    await publisher.publish(sound | doubted)
    before = len(topic.transfers)

    await publisher.publish(doubted)

    repeats = [ids for ids in topic.transfers[before:] if ids[0] not in doubted]
    assert len(repeats) <= 1


def test_keys_in_doubt_do_not_wait_for_one_unanswered_repeat_each() -> None:
    async def attempts() -> None:
        names = [f"d{number}" for number in range(20)]
        topic = FakeTopic(by_id=dict.fromkeys(names, "amqp:not-allowed"))
        publisher = topic.publisher(duplicate_window_s=6_000, senders=40, attempt_timeout_s=480)
        doubted = {name: [event(name, name)] for name in names}
        await publisher.publish({"first": [event("s", "first")]})
        await publisher.publish(doubted)
        topic.answers_after_s = 10_000
        began = time.monotonic()

        outcomes = await publisher.publish(doubted)

        # One repeat that is not answered, and then the events.
        assert time.monotonic() - began < 65
        assert {type(outcome.error) for outcome in outcomes} == {RetryableError}

    virtual_time.run(attempts())
