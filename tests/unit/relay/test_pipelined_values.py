"""Performatives with values of any AMQP type: those that the SDK's decoder knows, and those that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus._pyamqp._decode import decode_frame
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.emulators.servicebus import codec
from relay.servicebus.pipelined import frames, sdk
from relay.servicebus.pipelined.frames import ATTACH, CLOSE, DISPOSITION, FLOW
from tests.fuzz.budget import trying
from tests.support.amqp_peer import REJECTED, TRUE, described, error

NULL = b"\x40"


def frame(code: int, *fields: bytes) -> memoryview:
    return memoryview(described(code, fields))


# By AMQP 1.0, part 1.6: encodings, and what the relay makes of them.
KNOWN = [
    (NULL, None),
    (TRUE, True),
    (b"\x42", False),
    (b"\x56\x01", True),
    (b"\x56\x00", False),
    (b"\x43", 0),
    (b"\x44", 0),
    (b"\x50\xff", 255),
    (b"\x52\xff", 255),
    (b"\x53\xff", 255),
    (b"\x60\xff\xff", 65_535),
    (b"\x70\xff\xff\xff\xff", 2**32 - 1),
    (b"\x80" + b"\xff" * 8, 2**64 - 1),
    (b"\xa0\x02\x00\xff", b"\x00\xff"),
    (b"\xb0\x00\x00\x00\x01a", b"a"),
    (b"\xa1\x02\xc3\xa4", "ä".encode()),
    (b"\xb1\x00\x00\x00\x00", b""),
    (b"\xa3\x03sym", b"sym"),
    (b"\xb3\x00\x00\x00\x01s", b"s"),
    (b"\x45", []),
    (b"\xc0\x03\x02\x40\x41", [None, True]),
    (b"\xd0\x00\x00\x00\x06\x00\x00\x00\x02\x40\x43", [None, 0]),
]
# Skipped by their size: numbers that the relay needs nowhere, maps, arrays.
SKIPPED = [
    b"\x51\xff",
    b"\x54\xff",
    b"\x55\xff",
    b"\x61\xff\xff",
    b"\x71" + bytes(4),
    b"\x72" + bytes(4),
    b"\x73" + bytes(4),
    b"\x74" + bytes(4),
    b"\x81" + bytes(8),
    b"\x82" + bytes(8),
    b"\x83" + bytes(8),
    b"\x84" + bytes(8),
    b"\x94" + bytes(16),
    b"\x98" + bytes(16),
    codec.encode_map(2, codec.encode_symbol("k") + NULL),
    b"\xd1\x00\x00\x00\x06\x00\x00\x00\x02\xa1\x00",
    b"\xe0\x04\x02\x50\x01\x02",
    b"\xf0\x00\x00\x00\x05\x00\x00\x00\x01\x40",
    b"\x00\xa3\x03odd" + codec.encode_map(2, codec.encode_symbol("k") + b"\xe0\x03\x01\x50\x01"),
]


@pytest.mark.parametrize(("encoded", "value"), KNOWN, ids=[encoded.hex()[:8] for encoded, _ in KNOWN])
def test_a_value_is_read_and_the_next_one_is_found(encoded: bytes, value: object) -> None:
    code, fields = frames.decode(frame(CLOSE, encoded, b"\x52\x07"))

    assert (code, fields[:2]) == (CLOSE, [value, 7])
    # An attach has fourteen.
    assert fields[2:14] == [None] * 12
    assert type(fields[0]) is type(value)


def written(frame: bytes) -> tuple[int, list[Any], bytes]:
    """Return the channel, the fields and the payload of a frame as the SDK decodes it."""
    (_, fields), channel = decode_frame(memoryview(frame)[8:]), int.from_bytes(frame[6:8], "big")
    assert int.from_bytes(frame[:4], "big") == len(frame)
    assert frame[4:6] == b"\x02\x00"
    return channel, fields[:10], bytes(fields[11] or b"")


def test_a_transfer_is_written_as_the_sdk_reads_it() -> None:
    tag = (2**32 - 1).to_bytes(4, "big")

    first, last = map(written, frames.transfer(2**32 - 1, 0x80013700, b"abc", frames._HEADER_BYTES + 2))

    # Handle, delivery-id, delivery-tag, message-format, settled, more; AMQP 1.0, part 2.7.5.
    for (channel, fields, payload), more, part in ((first, True, b"ab"), (last, False, b"c")):
        assert (channel, payload) == (frames.CHANNEL, part)
        assert fields[:6] == [frames.HANDLE, 2**32 - 1, tag, 0x80013700, False, more]
        assert [type(each) for each in fields[4:6]] == [bool, bool]
        assert fields[6:] == [None, None, False, False]


def test_an_abort_is_written_as_the_sdk_reads_it() -> None:
    channel, fields, payload = written(frames.abort(7, 0))

    assert (channel, payload) == (frames.CHANNEL, b"")
    assert fields == [frames.HANDLE, 7, (7).to_bytes(4, "big"), 0, False, False, None, None, False, True]
    assert {type(each) for each in (fields[4], fields[5], fields[8], fields[9])} == {bool}


@pytest.mark.parametrize("encoded", SKIPPED, ids=[encoded.hex()[:8] for encoded in SKIPPED])
def test_a_value_of_another_type_is_skipped_and_the_next_one_is_found(encoded: bytes) -> None:
    _, fields = frames.decode(frame(CLOSE, encoded, b"\x52\x07"))

    assert fields[:2] == [None, 7]


def test_a_described_value_is_its_value_and_an_outcome_is_named() -> None:
    outcomes = [frames.decode(frame(CLOSE, described(code)))[1][0] for code in range(0x23, 0x29)]
    assert outcomes == [
        {"received": []},
        {"accepted": []},
        {"rejected": []},
        {"released": []},
        {"modified": []},
        [],
    ]
    # By a descriptor of eight bytes, too, and by a symbol for what is no outcome.
    long = b"\x00\x80" + (0x24).to_bytes(8, "big") + b"\x45"
    assert frames.decode(frame(CLOSE, long, b"\x00\xa3\x03odd\x52\x07"))[1][:2] == [{"accepted": []}, 7]


def test_an_error_with_an_info_that_the_sdk_does_not_know_is_classified_by_its_condition() -> None:
    info = codec.encode_map(2, codec.encode_symbol("k") + b"\x98" + bytes(16))
    refusal = described(REJECTED, [error("amqp:not-allowed", codec.encode_string("no"), b"\x00\xa3\x01x" + info)])

    code, fields = sdk.decode(frame(DISPOSITION, TRUE, b"\x43", NULL, TRUE, refusal))

    assert code == DISPOSITION
    assert fields[:4] == [True, 0, None, True]
    assert fields[4][sdk.REJECTED][0][:2] == [b"amqp:not-allowed", b"no"]


def test_what_the_sdk_knows_is_read_alike() -> None:
    fields = [
        TRUE,
        b"\x52\x07",
        NULL,
        TRUE,
        described(REJECTED, [error("amqp:not-allowed", codec.encode_string("no"))]),
    ]
    ours, theirs = frames.decode(frame(DISPOSITION, *fields)), sdk.decode(frame(DISPOSITION, *fields))

    assert ours[0] == theirs[0]
    assert ours[1][:4] == theirs[1][:4]
    for each in (ours, theirs):
        assert list(each[1][4][sdk.REJECTED][0])[:2] == [b"amqp:not-allowed", b"no"]


@pytest.mark.parametrize("decode", [frames.decode, sdk.decode])
def test_the_fields_of_a_performative_have_their_names(
    decode: Callable[[memoryview], tuple[int, list[Any]]],
) -> None:
    limit = [b"\x80" + (262_144).to_bytes(8, "big")]
    _, fields = decode(frame(ATTACH, codec.encode_string("l"), b"\x52\x07", TRUE, *[NULL] * 7, *limit))
    attach = frames.read(frames.Attach, fields)
    _, fields = decode(frame(FLOW, *(bytes((0x52, number)) for number in range(8)), TRUE))
    flow = frames.read(frames.Flow, fields)

    assert (attach.name, attach.handle, attach.role) == (b"l", 7, True)
    assert (attach.target, attach.max_message_size, attach.properties) == (None, 262_144, None)
    assert (flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id) == (0, 1, 2)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (4, 5, 6)
    assert flow.drain is True
    assert not flow.echo


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x40",
        b"\x00\x53\x18",
        b"\x00\x53\x18\x40",
        b"\x00\xa3\x03odd\x45",
        b"\x00\x53\x18\xc0\x05\x01\xa1\xff",
        b"\x00\x53\x18\xc0\x02\x05\x40",
        b"\x00\x53\x18\xc0\x02\x01\x20",
        b"\x00\x53\x18\xc0\xff\x01\x40",
        # A list within takes no value of the one around it.
        b"\x00\x53\x18\xc0\x06\x02\xc0\x02\x02\x40\x40",
        b"\x00" * 60,
    ],
    ids=bytes.hex,
)
def test_what_is_no_performative_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"frame|AMQP type|list|descriptors"):
        frames.decode(memoryview(data))


@pytest.mark.parametrize("nested", [b"\x00\x40", b"\x00"], ids=["values", "descriptors"])
def test_descriptions_of_descriptions_are_refused_however_many(nested: bytes) -> None:
    with pytest.raises(ValueError, match="descriptors of descriptors"):
        frames.decode(memoryview(b"\x00\x53\x18" + nested * 5_000 + b"\x45"))


def test_what_is_nested_deeper_than_any_performative_is_skipped() -> None:
    nested = b"\x45"
    for _ in range(200):
        nested = b"\xd0" + (len(nested) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + nested

    _, fields = frames.decode(frame(CLOSE, nested, b"\x52\x07"))

    assert fields[1] == 7
    depth, inner = 0, fields[0]
    while inner:
        depth, inner = depth + 1, inner[0]
    # An error within a rejection within a disposition is the third.
    assert depth == 7


@trying(300)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_performative_or_an_error(data: bytes) -> None:
    for each in (data, b"\x00\x53\x18" + data, b"\x00\x53\x18\xc0" + bytes([len(data) + 1, 3]) + data):
        try:
            code, fields = sdk.decode(memoryview(each)) if len(each) > 1 else frames.decode(memoryview(each))
        except ValueError:
            continue
        assert isinstance(code, int)
        assert isinstance(fields, list)
