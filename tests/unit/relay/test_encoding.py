"""What is transferred has the bytes that the SDK would transfer, and batches have the size that was foretold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageBatch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relay.events import Event
from relay.servicebus import encoding
from relay.servicebus.messages import Message
from relay.servicebus.pool import annotated
from relay.servicebus.transfers import Transfer, alone, in_batches
from tests.fuzz.service import encoded
from tests.unit.relay.topics import event

EXAMPLES = 150

_CHARACTERS = st.characters(exclude_categories=["Cs"])
# Lengths are encoded in one byte up to 255 bytes, those of lists and maps up to 254.
_LENGTHS = st.sampled_from([0, 1, 127, 128, *range(244, 260), 65_536])
_NEAR_A_BORDER = st.tuples(st.sampled_from("aé美🙂"), _LENGTHS).map(lambda made: _filled(*made))
_TEXTS = st.one_of(st.text(_CHARACTERS, max_size=40), _NEAR_A_BORDER)
_NAMES = st.text(_CHARACTERS, min_size=1, max_size=128)
_BORDERS = [border + near for border in (0, -(2**7), 2**7, 2**8, -(2**31), 2**31, 2**32) for near in (-1, 0, 1)]
_INTEGERS = st.one_of(st.sampled_from([*_BORDERS, -(2**63), 2**63 - 1]), st.integers(-(2**63), 2**63 - 1))
_PROPERTIES = st.dictionaries(_TEXTS, st.one_of(_TEXTS, _INTEGERS), min_size=1, max_size=6)
_BODIES = st.one_of(st.binary(max_size=40), _LENGTHS.map(bytes))
_MESSAGES = st.builds(Message, _NAMES, _NAMES, _TEXTS, _BODIES, _PROPERTIES)


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
    message = _message(application_properties={"sequence": number})

    assert encoding.encode(message) == encoded(annotated(message))


@pytest.mark.parametrize("size", [*range(100, 260)])
@pytest.mark.parametrize("character", ["a", "美"])
def test_every_length_is_encoded_as_the_sdk_does(character: str, size: int) -> None:
    text = _filled(character, size)
    for message in (
        _message(subject=text),
        _message(body=bytes(size)),
        _message(application_properties={"type": text}),
        _message(application_properties={text: 1}),
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
        event(f"{number}-{letter * (size % 60)}", data={"action": "A", "size": size})
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


def test_no_event_is_encoded_before_its_turn() -> None:
    asked: list[str] = []

    def message_of(source: Event) -> Message:
        asked.append(source.id)
        return _of(source)

    source = [event(str(number), data={"action": "A", "size": 600}) for number in range(10)]
    transfers = in_batches(source, message_of, 1_600)

    assert asked == []
    assert [each.id for each in next(transfers).events] == ["0", "1"]
    assert asked == ["0", "1", "2"]
