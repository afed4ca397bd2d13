"""Many partition keys over a pool of senders: what one key's failure means for the others and the next attempt."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus._pyamqp.error import AMQPLinkError
from azure.servicebus.exceptions import (
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from relay.config.settings import OnPoison, Settings
from relay.core.deadline import Deadline
from relay.core.errors import ConfigurationError, DefectError, DoubtfulRefusalError, NotTriedError, RetryableError
from relay.core.events import Event
from relay.core.evidence import DEFAULT_CAPACITY
from relay.core.verdict import Judge
from relay.large.claims import Claims
from relay.servicebus import messages
from relay.servicebus import pool as pools
from relay.servicebus.pipelined.lanes import PipelinedSenders
from relay.servicebus.pool import PooledSender, SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.support import virtual_time
from tests.support.in_memory_contents import InMemoryContents
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import FakeTopic, event, events

CUT = ServiceBusConnectionError(message="cut")
FINAL = Judge(needs_evidence=False)
FINAL_IN_ORDER = Judge(OnPoison.PARK, needs_evidence=False)
LEAST = {
    "COSMOS": "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0a2V5;",
    "SERVICEBUS": "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
}


def keys(count: int) -> dict[str, list[Event]]:
    return {f"k{number}": [event(f"e{number}", f"k{number}")] for number in range(count)}


async def test_what_was_accepted_is_known_to_the_publisher() -> None:
    topic = FakeTopic(limit=1_000, answers=[None, CUT, CUT, CUT])
    publisher = topic.publisher()
    source = events("a", "b", "c", size=450)

    (first,) = await publisher.publish(source)
    (second,) = await publisher.publish(source)

    assert (first.published, first.unsent) == (1, 2)
    assert (second.published, second.unsent) == (3, 0)
    assert [publisher.has_accepted(each) for each in source["k"]] == [True, True, True]
    assert not publisher.has_accepted(event("a", "other"))


async def test_a_key_that_fails_leaves_the_others_to_finish() -> None:
    topic = FakeTopic(by_id={"e1": "amqp:internal-error"})

    outcomes = await topic.publisher().publish(keys(4))

    assert [outcome.partition_key for outcome in outcomes] == ["k0", "k1", "k2", "k3"]
    assert [outcome.published for outcome in outcomes] == [1, 0, 1, 1]
    assert [outcome.unsent for outcome in outcomes] == [0, 1, 0, 0]


async def test_as_many_keys_are_under_way_at_a_time_as_there_are_senders() -> None:
    topic = FakeTopic()

    outcomes = await topic.publisher(senders=3).publish(keys(9))

    assert [outcome.published for outcome in outcomes] == [1] * 9
    assert len(topic.links) == 3


async def test_one_key_needs_one_link() -> None:
    topic = FakeTopic()

    await topic.publisher(senders=8).publish(keys(1))

    assert len(topic.links) == 1


@pytest.mark.parametrize("senders", [1, 2])
async def test_twice_as_many_keys_as_senders_failing_in_a_row_end_the_attempt(senders: int) -> None:
    topic = FakeTopic(answers=[CUT] * 1_000)

    outcomes = await topic.publisher(senders=senders).publish(keys(20))

    tried = {ids[0] for ids in topic.transfers}
    assert 2 * senders <= len(tried) <= 3 * senders
    assert [outcome.unsent for outcome in outcomes] == [1] * 20
    assert {type(outcome.error) for outcome in outcomes} == {RetryableError, NotTriedError}
    assert f"not tried, as {2 * senders} partition keys in a row failed" in str(outcomes[-1].error)
    # What made the others fail is said once, not nested once a key.
    assert str(outcomes[-1].error).count("not tried") == 1


async def test_a_key_that_gets_through_in_between_keeps_the_attempt_going() -> None:
    topic = FakeTopic(by_id={f"e{number}": "amqp:internal-error" for number in range(20) if number % 2})

    outcomes = await topic.publisher().publish(keys(20))

    assert sum(outcome.published for outcome in outcomes) == 10
    assert not [outcome for outcome in outcomes if "not tried" in str(outcome.error)]


async def test_refusals_of_every_key_end_the_attempt_too() -> None:
    topic = FakeTopic(by_id={f"e{number}": "amqp:not-allowed" for number in range(20)})

    outcomes = await topic.publisher().publish(keys(20))

    assert [type(outcome.error) for outcome in outcomes] == [DoubtfulRefusalError] * 2 + [NotTriedError] * 18
    assert "amqp:not-allowed" in str(outcomes[2].error)


async def test_what_is_set_aside_is_no_failure_and_keeps_no_key_from_being_tried() -> None:
    topic = FakeTopic(by_id={f"e{number}": "amqp:not-allowed" for number in range(19)})

    outcomes = await topic.publisher().publish(keys(20), judge=FINAL)

    assert [len(outcome.rejected) for outcome in outcomes] == [1] * 19 + [0]
    assert (outcomes[19].published, outcomes[19].error) == (1, None)


@pytest.mark.parametrize("senders", [1, 2, 3])
@pytest.mark.parametrize("bad", [4, 7, 19])
async def test_however_many_keys_fail_the_others_are_tried_within_a_few_attempts(senders: int, bad: int) -> None:
    topic = FakeTopic(by_id={f"e{number}": "amqp:internal-error" for number in range(bad)})
    publisher = topic.publisher(senders=senders, pauses_s=())

    for attempt in range(20):
        rest = {key: its for key, its in keys(20).items() if not publisher.has_accepted(its[0])}
        await publisher.publish(rest, rotate=attempt)

    assert sum(publisher.has_accepted(each) for (each,) in keys(20).values()) == 20 - bad


async def test_an_unforeseen_exception_stops_its_key_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = {"e1": RuntimeError("surprise"), "e3": RuntimeError("another"), "e4": KeyError("of another type")}

    def fails(each: Event) -> messages.Message:
        if each.id in errors:
            raise errors[each.id]
        return messages.plain(each)

    topic = FakeTopic()
    publisher = topic.publisher(senders=8)
    monkeypatch.setattr(publisher, "_shared", replace(publisher._shared, message_of=fails))

    outcomes = await publisher.publish(keys(5))

    assert [outcome.published for outcome in outcomes] == [1, 0, 1, 0, 0]
    # A thousand keys that fail alike log one traceback.
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [errors["e1"], errors["e4"]]
    assert isinstance(outcomes[1].error, DefectError)
    assert "surprise" in str(outcomes[1].error)
    assert (outcomes[1].unsent, outcomes[1].blocked_by) == (1, "e1")


def test_what_a_pooled_sender_has_given_up_before_it_left_never_leaves_behind_its_successor() -> None:
    async def attempts() -> None:
        topic = FakeTopic()
        topic.answers_after_s = 5
        publisher = topic.publisher(send_timeout_s=1)
        (failed,) = await publisher.publish(events("a"))
        assert "RELAY_SEND_TIMEOUT_S" in str(failed.error)
        topic.answers_after_s = 0

        (outcome,) = await publisher.publish(events("a", "b"))
        await asyncio.sleep(60)

        assert outcome.error is None
        assert topic.transfers == [["a", "b"]]

    virtual_time.run(attempts())


def test_a_send_that_fails_when_it_is_given_up_leaves_no_traceback() -> None:
    topic = FakeTopic()
    topic.answers_after_s, topic.fails_when_cancelled = 60, AttributeError("no connection")
    unretrieved: list[dict[str, Any]] = []

    async def attempt() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unretrieved.append(context))
        await topic.publisher(send_timeout_s=1).publish(events("a"))
        await asyncio.sleep(60)
        gc.collect()

    virtual_time.run(attempt())

    assert unretrieved == []


def test_an_attempt_ends_in_time_though_another_invocation_has_every_sender() -> None:
    async def attempts() -> None:
        topic = FakeTopic()
        topic.answers_after_s = 20
        publisher = topic.publisher(attempt_timeout_s=480)
        # Ten transfers, one after another.
        long = asyncio.create_task(publisher.publish(events(*"abcdefghij", key="long", size=200_000)))
        await asyncio.sleep(1)
        began = time.monotonic()
        late = await publisher.publish(
            events("x", key="one") | events("y", "z", key="two"), deadline=Deadline.after(10)
        )

        assert time.monotonic() - began == 12
        assert not long.done()
        assert [outcome.unsent for outcome in late] == [1, 2]
        assert all("RELAY_ATTEMPT_TIMEOUT_S (10 s)" in str(outcome.error) for outcome in late)
        assert [(outcome.error, outcome.published) for outcome in await long] == [(None, 10)]

    virtual_time.run(attempts())


def test_what_was_published_of_a_key_counts_where_another_invocation_then_takes_its_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(each: Event) -> messages.Message:
        if each.id == "b":
            raise RuntimeError("surprise")
        return messages.plain(each)

    async def attempts() -> None:
        topic = FakeTopic()
        publisher = topic.publisher()
        pool: Any = publisher._senders
        monkeypatch.setattr(publisher, "_shared", replace(publisher._shared, message_of=fails))
        topic.answers_after_s = 5
        ours = asyncio.create_task(
            publisher.publish(events("a", "b", "c"), deadline=Deadline.after(10), isolate=True)
        )
        await asyncio.sleep(1)
        # While `a` is sent alone.
        async with pool.acquire():
            (outcome,) = await ours

        assert topic.transfers == [["a"]]
        assert (outcome.published, outcome.unsent) == (1, 2)
        assert "RELAY_ATTEMPT_TIMEOUT_S (10 s)" in str(outcome.error)

    virtual_time.run(attempts())


async def test_an_event_that_causes_an_unforeseen_exception_among_others_is_named_once_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(each: Event) -> messages.Message:
        if each.id == "c":
            raise RuntimeError("surprise")
        return messages.plain(each)

    topic = FakeTopic()
    publisher = topic.publisher()
    monkeypatch.setattr(publisher, "_shared", replace(publisher._shared, message_of=fails))

    (first,) = await publisher.publish(events("a", "b", "c", "d"))
    (second,) = await publisher.publish(events("a", "b", "c", "d"), isolate=True)

    assert (first.published, first.unsent, first.blocked_by) == (0, 4, None)
    assert (second.published, second.unsent, second.blocked_by) == (2, 2, "c")
    assert isinstance(second.error, DefectError)
    assert topic.transfers == [["a"], ["b"]]


async def test_keys_of_which_something_was_accepted_or_that_are_too_large_are_no_outage() -> None:
    topic = FakeTopic(by_id={f"bad{number}": "amqp:not-allowed" for number in range(5)}, limit=1_000)
    partly = {
        f"k{number}": [event(f"bad{number}", f"k{number}"), event("ok", f"k{number}")] for number in range(5)
    }
    large = {f"l{number}": [event("large", f"l{number}", size=50_000)] for number in range(5)}

    outcomes = await topic.publisher().publish(partly | large, judge=FINAL)

    assert [outcome.error for outcome in outcomes] == [None] * 10
    assert [len(outcome.rejected) for outcome in outcomes] == [1] * 10


async def test_events_behind_a_rejected_one_are_unsent_where_the_key_fails_later() -> None:
    topic = FakeTopic(by_id={"b": "amqp:not-allowed", "d": "amqp:internal-error"})

    (outcome,) = await topic.publisher().publish(events("a", "b", "c", "d", "e"), isolate=True, judge=FINAL)

    assert (outcome.published, len(outcome.rejected), outcome.unsent) == (2, 1, 2)


async def test_a_link_that_cannot_be_opened_is_no_fault_of_the_events() -> None:
    topic = FakeTopic()
    topic.refuses_links = _not_allowed()

    (outcome,) = await topic.publisher().publish(events("a", "b"))

    assert (outcome.rejected, outcome.unsent) == ([], 2)
    assert isinstance(outcome.error, ConfigurationError)
    assert topic.transfers == []


def _not_allowed() -> Exception:
    return ServiceBusError("no", error=AMQPLinkError(b"amqp:not-allowed", description="no"))


async def test_a_pool_without_senders_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 0"):
        SenderPool(FakeTopic().client(), "t", 0)
    SenderPool(FakeTopic().client(), "t", 1)


async def test_the_sender_used_last_is_acquired_first() -> None:
    pool = SenderPool(FakeTopic().client(), "t", 2)
    async with pool.acquire() as first, pool.acquire() as second:
        assert second is not first
    async with pool.acquire() as again:
        assert again is first


async def test_no_more_senders_are_acquired_than_there_are() -> None:
    pool = SenderPool(FakeTopic().client(), "t", 1)
    async with pool.acquire():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), pool.acquire():
                pytest.fail("a second sender was acquired")


async def test_the_link_of_a_borrower_that_was_interrupted_is_closed() -> None:
    topic = FakeTopic()
    pool = SenderPool(topic.client(), "t", 1)

    async def user() -> None:
        async with pool.acquire() as sender:
            await sender.limits(5)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await user()
    async with pool.acquire() as sender:
        await sender.limits(5)

    assert len(topic.links) == 2
    await pool.close()
    assert [link.closed for link in topic.links] == [True, True]


async def test_the_limits_are_read_once_a_link_and_again_after_a_failure() -> None:
    topic = FakeTopic(limit=1_000, message_limit=5_000)
    pool = SenderPool(topic.client(), "t", 1)
    async with pool.acquire() as sender:
        before = await sender.limits(5)
        assert await sender.limits(5) is before
        sender.discard()
        topic.limit = 2_000
        after = await sender.limits(5)

    assert (before.batch, before.message, after.batch) == (1_000, 5_000, 2_000)
    assert len(topic.links) == 2


def test_a_link_that_does_not_open_in_time_is_given_up() -> None:
    async def attempt() -> None:
        topic = FakeTopic()
        pool = SenderPool(topic.client(), "t", 1)
        sender = PooledSender(pool)
        link = pool.new_link()
        topic.links[0].hangs = True
        pool.new_link = lambda: link  # type: ignore[method-assign]

        with pytest.raises(RetryableError, match="RELAY_SEND_TIMEOUT_S"):
            await sender.limits(5)

        assert asyncio.get_running_loop().time() == 5
        await pool.close()

    virtual_time.run(attempt())


@pytest.mark.parametrize("error", [CUT, ConnectionResetError()], ids=["by the SDK", "by the system"])
async def test_closing_ends_every_link_also_one_that_does_not_want_to(error: Exception) -> None:
    topic = FakeTopic()
    pool = SenderPool(topic.client(), "t", 2)
    async with pool.acquire() as first, pool.acquire() as second:
        await first.limits(5)
        await second.limits(5)
    topic.links[0].refuses_to_close = error

    await pool.close()

    assert [link.closed for link in topic.links] == [True, True]


@pytest.mark.parametrize(("pipelined", "kind"), [("true", PipelinedSenders), ("false", SenderPool)])
async def test_a_publisher_is_made_as_the_settings_say(pipelined: str, kind: type) -> None:
    settings = Settings.from_environment(
        LEAST
        | {
            "RELAY_PIPELINED": pipelined,
            "RELAY_SENDERS": "7",
            "RELAY_SEND_TIMEOUT_S": "11",
            "RELAY_ATTEMPT_TIMEOUT_S": "44",
            "SERVICEBUS_TOPIC": "orders",
        }
    )
    publisher = ServiceBusPublisher.from_settings(settings, messages.plain)

    assert (publisher.destination, publisher._senders.size) == ("orders", 7)
    assert (publisher._send_timeout_s, publisher._attempt_timeout_s) == (11, 44)
    used: Any = getattr(publisher._senders, "_used", publisher._senders)
    assert type(used) is kind
    # The SDK's own retries would send again on a link that it has opened meanwhile, unasked.
    holder: Any = used.shared if isinstance(used, PipelinedSenders) else used
    assert holder._client._config.retry_total == 0
    assert publisher._shared.ledger._generation_size == DEFAULT_CAPACITY // 2
    await publisher.close()


async def test_closing_a_publisher_closes_its_links_and_its_store() -> None:
    topic, contents = FakeTopic(), InMemoryContents()
    publisher = topic.publisher(claims=Claims(contents, messages.plain))
    await publisher.publish(keys(1))

    await publisher.close()

    assert [link.closed for link in topic.links] == [True]
    assert contents.closed


async def test_one_success_starts_the_count_of_failures_anew_and_no_lower() -> None:
    topic = FakeTopic(by_id={f"e{number}": "amqp:internal-error" for number in range(1, 10)})

    outcomes = await topic.publisher(pauses_s=()).publish(keys(10))

    assert [ids[0] for ids in topic.transfers] == ["e0", "e1", "e2"]
    assert [outcome.unsent for outcome in outcomes] == [0] + [1] * 9


async def test_what_is_not_tried_says_why_the_last_one_failed() -> None:
    topic = FakeTopic(answers=[CUT, ServiceBusAuthorizationError(message="no right")])

    outcomes = await topic.publisher(pauses_s=()).publish(keys(4))

    assert [type(outcome.error) for outcome in outcomes] == [
        RetryableError,
        ConfigurationError,
        *[NotTriedError] * 2,
    ]
    assert "no right" in str(outcomes[3].error)


async def test_a_link_that_could_not_be_opened_is_closed() -> None:
    topic = FakeTopic()
    pool = SenderPool(topic.client(), "t", 1)
    link = pool.new_link()
    topic.links[0].refuses_to_open = CUT
    pool.new_link = lambda: link  # type: ignore[method-assign]

    with pytest.raises(RetryableError):
        await PooledSender(pool).limits(5)
    await pool.close()

    assert topic.links[0].closed


async def test_closing_waits_for_links_that_were_given_up_and_keeps_none_of_them() -> None:
    topic = FakeTopic()
    pool = SenderPool(topic.client(), "t", 1)
    async with pool.acquire() as sender:
        await sender.limits(5)
        sender.discard()
    assert not topic.links[0].closed

    await pool.close()

    assert topic.links[0].closed
    assert topic.client_closed
    assert pool._closing == set()


async def test_a_link_that_never_closes_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_CLOSE_TIMEOUT_S", 0.05)
    topic = FakeTopic()
    pool = SenderPool(topic.client(), "t", 1)
    async with pool.acquire() as sender:
        await sender.limits(5)
    topic.links[0].hangs = True

    async with asyncio.timeout(WATCHDOG_S):
        await pool.close()
