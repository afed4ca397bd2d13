"""Whatever a message contains, it is handled or dead-lettered with a reason, and its successors follow."""

from __future__ import annotations

import json
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from outbox_relay import inbox
from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.errors import ServiceBusError
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    encode_section,
    sections,
)
from tests.support.inbox import QUEUE, Broker, broker

SEQUENCE, VALUE = 0x76, 0x77
KEY = "k"


def binary(data: bytes) -> bytes:
    return codec.encode_binary(data)


def raw_string(data: bytes) -> bytes:
    """A string of these bytes, which need not be UTF-8."""
    return b"\xb1" + len(data).to_bytes(4) + data


def encoded_map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return codec.encode_map(len(pairs), b"".join(key + value for key, value in pairs))


def encoded_nested(depth: int) -> bytes:
    inside = codec.NULL
    for _ in range(depth):
        inside = codec.encode_list([inside])
    return inside


SCALARS = st.one_of(
    st.just(codec.NULL),
    st.sampled_from([b"\x41", b"\x42", b"\x56\x01", b"\x43", b"\x44", b"\x45"]),
    st.integers(0, 2**64 - 1).map(lambda number: b"\x80" + number.to_bytes(8)),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b"\x81" + number.to_bytes(8, signed=True)),
    st.floats().map(lambda number: b"\x82" + struct.pack(">d", number)),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b"\x83" + number.to_bytes(8, signed=True)),
    st.uuids().map(lambda number: b"\x98" + number.bytes),
    st.binary(max_size=20).map(raw_string),
    st.binary(max_size=20).map(binary),
    st.text(max_size=20).map(codec.encode_string),
    st.characters().map(lambda character: b"\x73" + ord(character).to_bytes(4)),  # char
    st.binary(min_size=4, max_size=4).map(lambda data: b"\x74" + data),  # decimal32
    st.binary(min_size=8, max_size=8).map(lambda data: b"\x84" + data),  # decimal64
    st.binary(min_size=16, max_size=16).map(lambda data: b"\x94" + data),  # decimal128
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(codec.encode_list),
        st.lists(st.tuples(inner, inner), max_size=3).map(encoded_map),
        st.tuples(SCALARS, inner).map(lambda pair: b"\x00" + pair[0] + pair[1]),  # a described type
    ),
    max_leaves=5,
) | st.integers(1, 100).map(encoded_nested)
KNOWN = st.sampled_from(["sequence", "createdAt", "traceparent", "type"]).map(codec.encode_string)
NAMES = KNOWN | st.text(max_size=5).map(codec.encode_string) | SCALARS
JSON = st.sampled_from(
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"1e400",
        b"NaN",
        b'"\\ud800"',
        b"9" * 5000,
        b"\xff",
        b'{"a":1,"a":2}',
        b"\x00" * 9,
    ]
) | st.binary(max_size=30)


def body_of(kind: int, parts: list[bytes], value: bytes) -> bytes:
    if kind == DATA:
        return b"".join(encode_section(DATA, binary(part)) for part in parts)
    return encode_section(kind, codec.encode_list([value]) if kind == SEQUENCE else value)


BODIES = st.builds(body_of, st.sampled_from([DATA, DATA, SEQUENCE, VALUE]), st.lists(JSON, max_size=2), VALUES)


def encoded(identifier: bytes, subject: bytes, properties: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    fields = [codec.NULL] * 11
    fields[0], fields[3], fields[10] = identifier, subject, codec.encode_string(KEY)
    head = encode_section(PROPERTIES, codec.encode_list(fields))
    return head + encode_section(APPLICATION_PROPERTIES, encoded_map(properties)) + body


IDS = st.one_of(
    st.just(codec.NULL),
    st.text(max_size=10).map(codec.encode_string),
    st.uuids().map(lambda number: b"\x98" + number.bytes),
    st.integers(0, 2**64 - 1).map(lambda number: b"\x80" + number.to_bytes(8)),
    st.binary(max_size=10).map(binary),
    st.binary(max_size=10).map(raw_string),
)


def is_taken(message: bytes) -> bool:
    """Return True if the broker takes the message."""
    try:
        parse(message)
    except (ServiceBusError, codec.CodecError):
        return False
    return True


MESSAGES = st.builds(encoded, IDS, SCALARS, st.lists(st.tuples(NAMES, VALUES), max_size=4), BODIES).filter(
    is_taken
)
LAST = encoded(codec.encode_string("last"), codec.NULL, [], encode_section(DATA, binary(b"{}")))


async def receive(servicebus: Broker, folder: Path, *messages: bytes, **options: Any) -> list[str]:
    """Have the messages handled, and another one after them. Return what was dead-lettered, as reasons."""
    handled: list[str] = []
    queue = servicebus.server.broker.namespace.queues[QUEUE]
    queue.publish([parse(each) for each in (*messages, LAST)])
    with closing(inbox.SqliteConnection(folder / "store.sqlite")) as connection:
        store = inbox.SqliteStore(connection)

        async def handle(received: inbox.Message) -> None:
            async with store.once(received):
                json.dumps(received.json())
            handled.append(received.id)

        async with servicebus.receiving(handle, **options):
            await servicebus.until_empty()

    assert handled[-1] == "last"
    dead_letters = queue.outlet.messages.dead_letters
    assert dead_letters is not None
    reasons = [dead_letter_reason(entry.message.bare) for entry in dead_letters.peek(0, 100)]
    # Nothing has become neither: a message that was handled twice would be a repetition, and has its id once.
    assert len(set(handled)) - 1 + len(reasons) <= len(messages)
    return reasons


def dead_letter_reason(bare: bytes) -> str:
    """The reason in an encoded dead letter, whose other properties nobody needs to decode."""
    for section in sections(bare):
        if section.code == APPLICATION_PROPERTIES:
            found = list(codec.items(bare, section.value))
            reason = dict(zip(found[::2], found[1::2], strict=True))[codec.encode_string("DeadLetterReason")]
            return str(codec.decode(reason)[0])
    raise AssertionError("a dead letter without properties")


@settings(
    max_examples=12,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=8))
async def test_any_message_is_handled_or_dead_lettered_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, messages: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    async with broker(folder) as servicebus:
        reasons = await receive(servicebus, folder, *messages)

    assert set(reasons) <= {"unreadable", "no-message-id", "invalid-sequence"}


def with_property(name: bytes, value: bytes) -> bytes:
    body = encode_section(DATA, binary(b"{}"))
    return encoded(codec.encode_string("k-1"), codec.NULL, [(name, value)], body)


NAME = codec.encode_string("n")
UNDECODABLE = {
    "char": with_property(NAME, b"\x73\x00\x00\x00a"),
    "decimal32": with_property(NAME, b"\x74\x00\x00\x00\x00"),
    "decimal64": with_property(NAME, b"\x84" + b"\x00" * 8),
    "list as a name": with_property(codec.encode_list([NAME]), NAME),
    "nested": with_property(NAME, encoded_nested(80)),
    "frames": with_property(NAME, b"\x73\x00\x00\x00a") + encode_section(DATA, binary(b"x" * 200_000)),
}


async def test_messages_that_the_sdk_cannot_decode_are_dead_lettered(tmp_path: Path) -> None:
    async with broker(tmp_path) as servicebus:
        messages = [message for message in UNDECODABLE.values() for _ in range(2)]
        assert await receive(servicebus, tmp_path, *messages) == ["unreadable"] * len(messages)


NEVER_TAKEN = [
    (b"{}", 2**63, "invalid-sequence"),
    (b"{}", 2**64 - 1, "invalid-sequence"),
    # Deeper than any version of Python reads: 3.11 reads 991 levels, 3.13 reads 9998.
    (b'{"a":' * 30_000 + b"1" + b"}" * 30_000, 1, "unreadable"),
    (b"[" * 90_000 + b"]" * 90_000, 1, "unreadable"),
    (b"[NaN]", 1, "unreadable"),
    (b"1" * 5000, 1, "unreadable"),
    (b'{"a": "\xff"}', 1, "unreadable"),
]


async def test_what_a_store_or_a_handler_could_never_take_is_dead_lettered(tmp_path: Path) -> None:
    made = []
    for body, sequence, _ in NEVER_TAKEN:
        properties = [(codec.encode_string("sequence"), b"\x80" + sequence.to_bytes(8))]
        made.append(
            encoded(codec.encode_string("k-1"), codec.NULL, properties, encode_section(DATA, binary(body)))
        )

    async with broker(tmp_path) as servicebus:
        assert await receive(servicebus, tmp_path, *made) == [reason for _, _, reason in NEVER_TAKEN]


async def test_a_reason_that_amqp_cannot_encode_still_dead_letters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker(tmp_path) as servicebus:
        servicebus.publish("k")

        async def handle(received: inbox.Message) -> None:
            raise inbox.DeadLetter("half \ud800", json.loads('"\\udfff"'))

        async with servicebus.receiving(handle):
            await servicebus.until_empty()
        (dead,) = await servicebus.dead_letters()

    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("half ?", "?")
    assert "half ?: ?" in caplog.text
