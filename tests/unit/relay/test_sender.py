"""The sends of a command: chunk after chunk, each partition key in order, up to its first failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusConnectionError

from outbox_relay.operator.cli.sender import OrderedSender, ordered_sender
from outbox_relay.operator.cli.terminal import ExitCode
from relay.config.settings import Settings
from relay.core.events import Event
from tests.unit.relay.topics import FakeTopic, event

BUSY = "com.microsoft:server-busy"
REFUSED = "com.microsoft:argument-error"

# The publisher tries each transfer three times.
TRIES = 3


def sender_to(topic: FakeTopic, pauses_s: Sequence[float] = (0, 0)) -> OrderedSender:
    return OrderedSender(topic.publisher(), pauses_s)


def chunk(*identifiers: str) -> list[Event]:
    """Events whose partition key is the letter before the dash."""
    return [event(identifier, identifier.partition("-")[0]) for identifier in identifiers]


def cut() -> ServiceBusConnectionError:
    return ServiceBusConnectionError(message="cut")


def ids(through: dict[str, list[Event]]) -> dict[str, list[str]]:
    return {key: [each.id for each in its_events] for key, its_events in through.items()}


async def test_chunks_go_out_in_order_and_all_went_well() -> None:
    topic = FakeTopic()
    sender = sender_to(topic)
    assert not sender.gave_up

    first = await sender.send(chunk("a-1", "b-1", "a-2"))
    second = await sender.send(chunk("a-3"))

    assert (topic.ids("a"), topic.ids("b")) == (["a-1", "a-2", "a-3"], ["b-1"])
    assert [ids(each.through) for each in (first, second)] == [{"a": ["a-1", "a-2"], "b": ["b-1"]}, {"a": ["a-3"]}]
    assert [each.id for each in first.accepted] == ["a-1", "a-2", "b-1"]
    assert (sender.failures, sender.gave_up, sender.exit_code) == ({}, False, ExitCode.OK)


async def test_a_key_that_fails_is_not_sent_for_again_and_the_others_go_on() -> None:
    topic = FakeTopic(by_id={"a-2": BUSY})
    sender = sender_to(topic)

    first = await sender.send([*chunk("a-1"), *chunk("b-1")])
    second = await sender.send(chunk("a-2", "b-2", "a-3"))
    topic.by_id.clear()
    third = await sender.send(chunk("a-4", "b-3"))

    assert (topic.ids("a"), topic.ids("b")) == (["a-1"], ["b-1", "b-2", "b-3"])
    assert [ids(each.through).get("a") for each in (first, second, third)] == [["a-1"], [], None]
    assert [(failure["partitionKey"], failure["unsent"]) for failure in sender.failures_data()] == [("a", 3)]
    assert ["'a': 3 not sent" in line for line in sender.failure_lines()] == [True]
    assert (sender.gave_up, sender.exit_code) == (False, ExitCode.FINDINGS)


async def test_what_fails_for_a_moment_is_tried_again_and_goes_out_once_and_in_order() -> None:
    topic = FakeTopic(answers=[*[cut()] * TRIES, None, *[cut()] * TRIES])
    sender = sender_to(topic)

    sent = await sender.send(chunk("a-1", "a-2", "b-1"))

    assert (topic.ids("a"), topic.ids("b")) == (["a-1", "a-2"], ["b-1"])
    assert ids(sent.through) == {"a": ["a-1", "a-2"], "b": ["b-1"]}
    assert (sender.failures, sender.exit_code) == ({}, ExitCode.OK)
    assert len(topic.transfers) == 2 * TRIES + 2


async def test_between_the_tries_lie_some_seconds_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await really_sleep(0)

    monkeypatch.setattr("outbox_relay.operator.cli.sender.asyncio.sleep", sleep)
    topic = FakeTopic(by_id={"a-1": BUSY})
    sender = OrderedSender(topic.publisher())

    await sender.send(chunk("a-1"))

    pauses = [seconds for seconds in waited if seconds]
    assert len(pauses) == 2
    assert 0 < pauses[0] < pauses[1]
    assert 2 <= sum(pauses) <= 4


async def test_what_nobody_but_an_operator_can_put_right_is_not_tried_again() -> None:
    topic = FakeTopic(answers=[None, *[MessagingEntityNotFoundError(message="no such topic")] * 2])
    sender = sender_to(topic)

    await sender.send(chunk("a-1", "b-1"))

    assert (topic.transfers, topic.ids("b")) == ([["a-1"], ["b-1"]], [])
    assert (sender.gave_up, sender.exit_code) == (True, ExitCode.SERVICE)


@pytest.mark.parametrize(("keys", "gave_up"), [("ab", False), ("abc", True)])
async def test_where_the_first_keys_all_fail_it_is_the_service(keys: str, gave_up: bool) -> None:
    topic = FakeTopic(by_id={f"{key}-1": BUSY for key in keys})
    sender = sender_to(topic)

    await sender.send(chunk(*(f"{key}-1" for key in keys)))

    assert (sender.gave_up, sender.exit_code) == (gave_up, ExitCode.SERVICE)


async def test_it_gives_up_at_three_failed_keys_in_a_row_over_chunks_and_not_before() -> None:
    topic = FakeTopic(by_id={f"{key}-1": BUSY for key in "abdef"})
    sender = sender_to(topic)
    shown = []

    for identifiers in (["a-1", "b-1"], ["c-1", "d-1"], ["e-1"], ["f-1"]):
        await sender.send(chunk(*identifiers))
        shown.append(sender.gave_up)

    assert shown == [False, False, False, True]
    assert (topic.ids("c"), sender.exit_code) == (["c-1"], ExitCode.SERVICE)


async def test_a_chunk_of_which_something_was_accepted_is_no_outage_however_many_keys_failed() -> None:
    topic = FakeTopic(by_id={f"{key}-1": BUSY for key in "bcd"})
    sender = sender_to(topic)

    await sender.send(chunk("a-1", "b-1", "c-1", "d-1"))

    assert (len(sender.failures), sender.gave_up, sender.exit_code) == (3, False, ExitCode.FINDINGS)


async def test_a_rejected_event_is_dealt_with_and_those_behind_it_go_out() -> None:
    topic = FakeTopic(by_id={"a-2": REFUSED})
    sender = sender_to(topic)

    sent = await sender.send(chunk("a-1", "a-2", "a-3"))

    assert topic.ids("a") == ["a-1", "a-3"]
    assert ids(sent.through) == {"a": ["a-1", "a-2", "a-3"]}
    assert [each.id for each in sent.accepted] == ["a-1", "a-3"]
    assert [rejected.id for rejected in sent.rejected] == ["a-2"]
    assert (sender.failures, sender.exit_code) == ({}, ExitCode.OK)


async def test_where_a_rejection_stops_a_key_what_is_behind_it_is_neither_sent_nor_dealt_with() -> None:
    topic = FakeTopic(by_id={"a-2": REFUSED})
    sender = sender_to(topic)

    sent = await sender.send(chunk("a-1", "a-2", "a-3"), stop_at_rejection=True)

    assert topic.ids("a") == ["a-1"]
    assert ids(sent.through) == {"a": ["a-1", "a-2"]}
    assert [rejected.id for rejected in sent.rejected] == ["a-2"]
    assert sender.failures == {}


@pytest.mark.parametrize(("options", "keeps_id"), [({}, False), ({"with_original_id": True}, True)])
async def test_a_commands_sender_sends_as_the_app_does_and_is_closed_behind_it(
    options: dict[str, bool], keeps_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = FakeTopic()
    monkeypatch.setattr("relay.servicebus.senders.servicebus_client", lambda *_, **__: topic.client())
    settings = Settings.from_environment(
        {
            "COSMOS": "AccountEndpoint=https://h/;AccountKey=YQ==;",
            "SERVICEBUS": "Endpoint=sb://h/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
            "RELAY_PIPELINED": "false",
        }
    )

    async with ordered_sender(settings, **options) as sender:
        await sender.send(chunk("a-1"))
        assert not topic.client_closed

    (message,) = topic.accepted["a"]
    assert (message.message_id, b"originalId" in message.bare) == ("a-1", keeps_id)
    assert topic.client_closed
