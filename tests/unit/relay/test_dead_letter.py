"""A dead letter as the broker delivers it, and the copy that is published again."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

import pytest
from proton import Message, char, float32, symbol, timestamp, ubyte

from outbox_relay.emulators.servicebus.entry import Entry, dead_letter
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.operator.deadletters import sections
from outbox_relay.operator.deadletters.letter import body, copy_of, described, lock_of, read
from tests.support.dead_letters import event

AT_MS = 1_700_000_000_123


def delivered(message: Message, *, reason: str | None = "schema", count: int = 3, topic_number: int = 40) -> bytes:
    """A message in the dead-letter queue, as a receiver gets it."""
    entry = Entry(parse(bytes(message.encode())), 17, topic_number, AT_MS, delivery_count=count)
    return dead_letter(entry, reason, reason and "no title").encode(AT_MS + 60_000)


def test_a_dead_letter_is_read_with_its_reason_and_its_numbers() -> None:
    letter = read("all", delivered(event("k", 1)))

    assert (letter.name, letter.sequence_number, letter.order) == ("all/17", 17, 40)
    assert (letter.id, letter.partition_key, letter.session_id, letter.subject) == ("k-1", "k", "k", "Renamed")
    assert (letter.reason, letter.description, letter.delivery_count) == ("schema", "no title", 3)
    assert letter.enqueued_at == datetime.fromtimestamp(AT_MS / 1000, UTC)
    assert letter.data()["enqueuedAt"] == "2023-11-14T22:13:20Z"


def test_a_message_with_nothing_but_a_body_is_read() -> None:
    letter = read("all", delivered(Message(b"x", inferred=True), reason=None, count=0))

    assert (letter.id, letter.partition_key, letter.session_id, letter.subject) == (None,) * 4
    assert (letter.reason, letter.description, letter.delivery_count) == (None, None, 0)


def test_without_a_session_the_key_is_the_partition_key() -> None:
    message = Message(b"x", inferred=True, id=5, annotations={symbol("x-opt-partition-key"): "p"})

    letter = read("all", delivered(message))

    assert (letter.id, letter.partition_key, letter.session_id) == ("5", "p", None)


@pytest.mark.parametrize(
    "message",
    [
        event("k", 1, text="é", none=None, letter=char("é"), at=timestamp(AT_MS), large=2**63 - 1, half=0.5),
        Message(b"x", inferred=True),
        Message({"a": [1, {"b": b"\x00"}]}, id=UUID(int=7)),
        Message([1, 2], inferred=True, annotations={symbol("mine"): ubyte(1)}, properties={"own": "x" * 300}),
    ],
    ids=["an event", "a body alone", "a value", "a sequence"],
)
def test_a_copy_is_what_was_sent(message: Message) -> None:
    sent = parse(bytes(message.encode()))

    copy = parse(copy_of(delivered(message)))

    assert copy.bare == sent.bare
    assert copy.decoded_annotations == sent.decoded_annotations
    assert copy.ttl_ms is None
    assert set(re.findall(rb"x-opt-[a-z-]+", copy_of(delivered(message)))) <= {b"x-opt-partition-key"}


def test_a_copy_expires_when_the_topic_says_and_not_when_its_original_did() -> None:
    message = event("k", 1, own=1)
    message.expiry_time, message.creation_time = AT_MS / 1000 + 60, AT_MS / 1000
    message.reply_to_group_id = "r"

    copied = Message()
    copied.decode(copy_of(delivered(message)))

    assert copied.expiry_time == 0
    assert (copied.creation_time, copied.reply_to_group_id) == (AT_MS / 1000, "r")
    assert (copied.id, copied.group_id, copied.subject) == (message.id, message.group_id, message.subject)
    assert copied.body == message.body


def test_what_the_sdk_gets_of_a_delivery_is_its_lock() -> None:
    encoded = lock_of(delivered(event("k", 1, letter=char("é"))))

    found = {section.code: section for section in sections.sections(encoded)}
    annotations = {
        sections.text(name): sections.scalar(value, 0)
        for name, value in sections.pairs(encoded, found[sections.ANNOTATIONS].value)
    }
    assert annotations == {
        "x-opt-sequence-number": 17,
        "x-opt-locked-until": datetime.fromtimestamp((AT_MS + 60_000) / 1000, UTC),
    }
    assert body(encoded) == ""


def test_properties_are_shown_as_json_has_them() -> None:
    values: dict[str, Any] = {
        "yes": True,
        "at": timestamp(0),
        "id": UUID(int=1),
        "raw": b"\xff",
        "letter": char("é"),
    }
    shown = described(delivered(event("k", 1, **values, lost=math.inf, small=float32(0.5), minus=-5)))

    assert shown["properties"]["messageId"] == "k-1"
    numbers = {"sequence": 1, "small": 0.5, "minus": -5, "lost": "inf"}
    texts = {"type": "domainEvent", "letter": "é", "at": "1970-01-01T00:00:00+00:00", "id": str(UUID(int=1))}
    assert shown["applicationProperties"] == {**numbers, **texts, "yes": True, "raw": "base64:/w=="}


@pytest.mark.parametrize(("content", "expected"), [(b'{"a": 1}', '{"a": 1}'), (b"\xff", "base64:/w=="), (b"", "")])
def test_a_body_is_shown_as_text_if_it_is_text(content: bytes, expected: str) -> None:
    assert body(delivered(event("k", 1, body=content))) == expected


def test_a_body_that_is_no_data_is_shown_encoded() -> None:
    assert body(delivered(Message(char("é")))).startswith("base64:")


def test_what_is_cut_off_anywhere_is_refused_or_read() -> None:
    whole = delivered(event("k", 1, letter=char("é"), large="x" * 300))

    for length in range(len(whole)):
        for use in (lambda cut: read("all", cut), copy_of, described, body):
            try:
                use(whole[:length])
            except ValueError:
                continue


def test_bytes_that_were_changed_anywhere_are_refused_or_read() -> None:
    whole = delivered(event("k", 1, letter=char("é"), large="x" * 300, at=timestamp(AT_MS), id=UUID(int=1)))
    drawn = Random(1)

    for _ in range(3_000):
        changed = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
        for use in (lambda encoded: read("all", encoded), copy_of, described, body, lock_of):
            try:
                use(bytes(changed))
            except ValueError:
                continue


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x40",
        b"\x00\x53\x73",
        b"\x00\x53\x73\xc0",
        b"\x00\x53\x73\xc0\x05\x01\x40",
        b"\x00\x53\x74\xc1\x02\x03\x40",
        b"\x00\x53\x74\xc1\x02\x01\x40",
        b"\x00\x53\x75\x1f",
        b"\x00" * 200,
    ],
)
def test_what_is_no_message_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read("all", encoded)
