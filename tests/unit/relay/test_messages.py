"""The transfers: the message, the bytes that the SDK would transfer, and the sizes of batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.backends.cosmos.source import event_of
from relay.core.documents import SourceDocument
from relay.core.events import Event, read_event
from relay.routes.mapping import Long, Moment
from relay.servicebus import encoding, messages
from relay.servicebus.messages import Further, Message
from relay.servicebus.pool import annotated
from relay.servicebus.transfers import Transfer, alone, in_batches
from tests.fuzz.service import encoded
from tests.unit.relay import topics


def event(**changes: Any) -> Event:
    document = {
        "id": "e1",
        "partitionKey": "c1",
        "type": "domainEvent",
        "_ts": 1_700_000_000,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "data": {"action": "ContactNameUpdatedEvent", "createdAt": "2026-02-09T11:37:37.3022907+02:00", "Ä": 1.0},
    }
    made = event_of(SourceDocument.plain(document | changes))
    assert isinstance(made, Event)
    return made


def on_the_wire(message: ServiceBusMessage) -> list[bytes]:
    batch = ServiceBusMessageBatch()
    batch.add_message(message)
    # What the SDK (7.15.0) sends of a batch: its data sections, each an encoded message.
    return list(batch._message[5])


@pytest.mark.parametrize("timestamp", [1_700_000_000, 2**31])
def test_the_message_follows_the_contract(timestamp: int) -> None:
    source = event(_ts=timestamp)
    long: Any = {"TYPE": "LONG", "VALUE": timestamp}

    message = messages.plain(source)

    assert [encoding.encode(message)] == on_the_wire(
        ServiceBusMessage(
            orjson.dumps(source.data),
            message_id="e1",
            session_id="c1",
            partition_key="c1",
            subject="ContactNameUpdatedEvent",
            content_type="application/json",
            application_properties={
                "type": "domainEvent",
                "cosmosTimestamp": long,
                "createdAt": "2026-02-09T11:37:37.3022907+02:00",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            },
        )
    )


@pytest.mark.parametrize("absent", [{"_ts": None}, {"_ts": True}, {"_ts": "1"}])
def test_a_timestamp_that_is_no_whole_number_is_left_out(absent: dict[str, Any]) -> None:
    assert "cosmosTimestamp" not in messages.plain(event(**absent)).application_properties


def test_an_event_of_another_source_than_cosmos_db_has_no_timestamp_of_it() -> None:
    document = {name: value for name, value in event().document.stored.items() if name != "_ts"}
    made = read_event(SourceDocument.plain(document), committed_at=1_700_000_000)
    assert isinstance(made, Event)

    assert "cosmosTimestamp" not in messages.plain(made).application_properties


def test_properties_that_are_no_strings_are_left_out() -> None:
    message = messages.plain(event(traceparent=7, data={"action": "A", "createdAt": 20260101}))

    assert message.application_properties == {"type": "domainEvent", "cosmosTimestamp": 1_700_000_000}


def test_cloudevents_stand_beside_the_contract() -> None:
    message = messages.cloudevents("/contacts")(event())

    assert message.application_properties == messages.plain(event()).application_properties | {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "e1",
        "cloudEvents:source": "/contacts",
        "cloudEvents:type": "ContactNameUpdatedEvent",
        "cloudEvents:partitionkey": "c1",
        "cloudEvents:time": "2026-02-09T11:37:37.3022907+02:00",
        "cloudEvents:traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }


@pytest.mark.parametrize("time", ["2026-01-01t00:00:00z", "2016-12-31T23:59:60Z", "9999-12-31T23:59:59.5-05:00"])
def test_cloudevents_time_is_any_rfc_3339_timestamp_as_it_is(time: str) -> None:
    message = messages.cloudevents("/contacts")(event(data={"action": "A", "createdAt": time}))

    assert message.application_properties["cloudEvents:time"] == time


@pytest.mark.parametrize(
    "no_time",
    [
        "yesterday",
        "2026-02-09",
        "2026-02-09T11:37:37",
        "2026-02-09 11:37:37Z",
        "2026-01-01T00Z",
        "2026-W01-1T00:00:00Z",
        "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00+05:30:15",
        "2026-01-01T000000+0000",
        "2026-01-01T00:00:60Z",
        "2026-02-30T00:00:00Z",
        "٢٠٢٦-01-01T00:00:00Z",
    ],
)
def test_cloudevents_time_is_left_out_where_it_is_no_rfc_3339_timestamp(no_time: str) -> None:
    message = messages.cloudevents("/contacts")(event(data={"action": "A", "createdAt": no_time}))

    assert "cloudEvents:time" not in message.application_properties


@pytest.mark.parametrize("number", [0, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_an_integer_of_64_bits_is_sent(number: int) -> None:
    assert messages.plain(event(sequence=number)).application_properties["sequence"] == number


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_integers_that_amqp_has_no_type_for_are_left_out(number: int) -> None:
    assert "sequence" not in messages.plain(event(sequence=number)).application_properties


def test_the_format_is_that_of_the_settings() -> None:
    assert "cloudEvents:id" not in messages.contract(None)(event()).application_properties
    assert messages.contract("/shop")(event()).application_properties["cloudEvents:source"] == "/shop"


def test_an_event_sent_under_a_new_id_has_its_original_id_beside_the_contract() -> None:
    renamed = event()._replace(id="new")

    message = messages.with_original_id(messages.plain)(renamed)

    assert message.application_properties == messages.plain(event()).application_properties | {"originalId": "e1"}


def test_cloudevents_leave_out_what_the_event_does_not_have() -> None:
    message = messages.cloudevents("/contacts")(event(traceparent=None, data={"action": "A"}))

    assert {"cloudEvents:time", "cloudEvents:traceparent"}.isdisjoint(message.application_properties)


# What is transferred has the bytes that the SDK would transfer, and batches have the size that was foretold


EXAMPLES = 150

_CHARACTERS = st.characters(exclude_categories=["Cs"])
# Lengths are encoded in one byte up to 255 bytes, those of lists and maps up to 254.
_LENGTHS = st.sampled_from([0, 1, 127, 128, *range(244, 260), 65_536])
_NEAR_A_BORDER = st.tuples(st.sampled_from("aé美🙂"), _LENGTHS).map(lambda made: _filled(*made))
_TEXTS = st.one_of(st.text(_CHARACTERS, max_size=40), _NEAR_A_BORDER)
_NAMES = st.text(_CHARACTERS, min_size=1, max_size=128)
_BORDERS = [border + near for border in (0, -(2**7), 2**7, 2**8, -(2**31), 2**31, 2**32) for near in (-1, 0, 1)]
_INTEGERS = st.one_of(st.sampled_from([*_BORDERS, -(2**63), 2**63 - 1]), st.integers(-(2**63), 2**63 - 1))
_MOMENTS = st.integers(-(2**62), 2**62)
_TYPED = st.one_of(_INTEGERS.map(Long), _MOMENTS.map(Moment), st.booleans(), st.floats(allow_nan=False))
_PROPERTIES = st.dictionaries(_TEXTS, st.one_of(_TEXTS, _TYPED), min_size=1, max_size=6)
_LIFETIMES = st.one_of(st.sampled_from([1, 255, 256, 2**32 - 1]), st.integers(1, 2**32 - 1))
_FURTHER = st.builds(
    Further, *(st.one_of(st.none(), values) for values in (_TEXTS, _TEXTS, _LIFETIMES, st.integers(0, 2**62)))
)
_BODIES = st.one_of(st.binary(max_size=40), _LENGTHS.map(bytes))
_MESSAGES = st.builds(Message, _NAMES, _NAMES, _TEXTS, _BODIES, _PROPERTIES, st.one_of(st.none(), _FURTHER))


@pytest.fixture(autouse=True, scope="module")
def _still_clock() -> Iterator[None]:
    """A time to live comes with the time of the message."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_now_ms", lambda: 1_770_637_020_000)
        patch.setattr(time, "mktime", lambda _: 1_770_637_020)
        yield


def _filled(character: str, size: int) -> str:
    """A text of `size` bytes, all but a few of which are of this character."""
    width = len(character.encode())
    return character * (size // width) + "a" * (size % width)


def _message(**changes: Any) -> Message:
    return Message("e1", "k1", "Made", b"{}", {"type": "domainEvent"})._replace(**changes)


@settings(max_examples=EXAMPLES)
@given(_MESSAGES)
@example(_message(application_properties={f"p{number}": "" for number in range(200)}))
def test_a_message_is_encoded_as_the_sdk_does(message: Message) -> None:
    assert encoding.encode(message) == encoded(annotated(message))


@pytest.mark.parametrize("number", _BORDERS)
def test_every_integer_is_encoded_as_the_sdk_does(number: int) -> None:
    message = _message(application_properties={"sequence": Long(number)})

    assert encoding.encode(message) == encoded(annotated(message))


@pytest.mark.parametrize("size", [*range(100, 260)])
@pytest.mark.parametrize("character", ["a", "美"])
def test_every_length_is_encoded_as_the_sdk_does(character: str, size: int) -> None:
    text = _filled(character, size)
    for message in (
        _message(subject=text),
        _message(body=bytes(size)),
        _message(application_properties={"type": text}),
        _message(application_properties={text: Long(1)}),
        _message(id=text[:128], partition_key=text[-128:]),
    ):
        assert encoding.encode(message) == encoded(annotated(message))


@settings(max_examples=EXAMPLES // 3)
@given(st.lists(_MESSAGES, min_size=1, max_size=4))
def test_a_batch_is_encoded_as_the_sdk_does_and_has_the_size_of_its_parts(messages: list[Message]) -> None:
    first = messages[0]
    messages = [message._replace(partition_key=first.partition_key) for message in messages]
    batch = ServiceBusMessageBatch(10**7)
    for message in messages:
        batch.add_message(annotated(message))
    parts = [encoding.encode(message) for message in messages]

    made = encoding.encode_batch(_envelope(first), parts)

    assert made == encoded(batch)
    assert len(made) == len(_envelope(first)) + sum(map(encoding.size_in_batch, parts))


@pytest.mark.parametrize("size", [*range(120, 134), *range(248, 260)])
def test_the_sizes_of_a_batch_add_up_around_every_border(size: int) -> None:
    message = _message(body=b"")
    message = message._replace(body=bytes(size - len(encoding.encode(message))))
    parts = [encoding.encode(message)] * 3

    assert len(parts[0]) == size
    assert len(encoding.encode_batch(_envelope(message), parts)) == len(_envelope(message)) + 3 * (
        encoding.size_in_batch(parts[0])
    )


def _envelope(message: Message) -> bytes:
    return encoding.envelope(message.id, message.partition_key)


def _of(source: Event) -> Message:
    return _message(id=source.id, partition_key=source.partition_key, body=bytes(source.data["size"]))


@settings(max_examples=EXAMPLES)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 400), st.just(5_000)), max_size=30),
    limit=st.integers(300, 4_000),
    letter=st.sampled_from(["x", "美"]),
)
def test_events_leave_in_order_each_once_in_batches_as_full_as_the_limit_allows(
    sizes: list[int], limit: int, letter: str
) -> None:
    # Ids of many lengths: the first one of a batch is in its envelope, too.
    source = [
        topics.event(f"{number}-{letter * (size % 60)}", data={"action": "A", "size": size})
        for number, size in enumerate(sizes)
    ]

    made = list(in_batches(source, _of, limit))

    assert [each for transfer in made for each in transfer.events] == source
    for transfer in made:
        assert [message.id for message in transfer.messages()] == [each.id for each in transfer.events]
        assert transfer.is_batch == (len(transfer.events) > 1)
        if transfer.is_batch:
            assert len(transfer.payload) <= limit
        else:
            assert transfer.payload == alone(transfer.events[0], _of).payload
    for transfer, following in pairwise(made):
        assert len(_with(transfer, next(following.messages()))) > limit


def _with(transfer: Transfer, one_more: Message) -> bytes:
    messages = [*transfer.messages(), one_more]
    return encoding.encode_batch(
        _envelope(messages[0]),
        [encoding.encode(message) for message in messages],
    )


def test_a_batch_of_just_the_limit_is_one_and_of_a_byte_more_is_none() -> None:
    source = [topics.event(each, data={"action": "A", "size": 100}) for each in "ab"]
    (whole,) = in_batches(source, _of, 10_000)
    size = len(whole.payload)

    assert [len(each.events) for each in in_batches(source, _of, size)] == [2]
    assert [len(each.events) for each in in_batches(source, _of, size - 1)] == [1, 1]


def test_no_event_is_encoded_before_its_turn() -> None:
    asked: list[str] = []

    def message_of(source: Event) -> Message:
        asked.append(source.id)
        return _of(source)

    source = [topics.event(str(number), data={"action": "A", "size": 600}) for number in range(10)]
    transfers = in_batches(source, message_of, 1_600)

    assert asked == []
    assert [each.id for each in next(transfers).events] == ["0", "1"]
    assert asked == ["0", "1", "2"]
