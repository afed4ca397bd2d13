"""Frames cut from a stream, and the AMQP encodings of their values, against Proton's."""

from __future__ import annotations

import contextlib
import struct
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data, timestamp

from outbox_relay.emulators.faults import Faults
from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.fault_plans import FaultPlan
from outbox_relay.emulators.servicebus.frame_faults import Cut, FrameFaults
from outbox_relay.emulators.servicebus.frames import (
    TRANSFER,
    DeliveryTracker,
    FrameReader,
    Transfer,
    middle_of_last,
    performative,
)
from outbox_relay.emulators.servicebus.link_faults import LinkFaults
from outbox_relay.emulators.servicebus.link_table import LinkTable
from outbox_relay.emulators.servicebus.role import Role
from outbox_relay.emulators.servicebus.sections import BATCH_FORMAT
from packages.emulators.tests.servicebus.fakes import FakeClock

HEADER = b"AMQP\x00\x01\x00\x00"
LARGEST = 65536


def frame(body: bytes, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body


def transfer(
    number: int | None, *, handle: int = 0, form: int | None = 0, more: bool = False, channel: int = 0
) -> bytes:
    fields = [
        codec.encode_uint(handle),
        codec.NULL if number is None else codec.encode_uint(number),
        codec.encode_binary(b"tag"),
        codec.NULL if form is None else codec.encode_uint(form),
        b"\x42",
        b"\x41" if more else b"\x42",
    ]
    return frame(b"\x00\x53\x14" + codec.encode_list(fields) + b"payload", channel)


def number_in(sent: bytes) -> object:
    return codec.decode(sent, 11)[0][1]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_frames_come_out_whole_whatever_pieces_they_arrive_in(cuts: list[int]) -> None:
    expected = [HEADER, frame(b"one"), frame(b""), HEADER, transfer(7)]
    stream = b"".join(expected)
    reader = FrameReader(LARGEST)

    found: list[bytes] = []
    at = 0
    for cut in [*cuts, len(stream)]:
        found += reader.feed(stream[at : at + cut])
        at += cut

    assert found == expected


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n", b"\x00\x00\x00\x03garbage"])
def test_what_cannot_be_a_frame_is_passed_on_at_once(junk: bytes) -> None:
    assert list(FrameReader(LARGEST).feed(junk)) == [junk]


def test_the_format_of_a_delivery_is_that_of_its_first_frame() -> None:
    tracker = DeliveryTracker()

    tracker.follow(transfer(0, form=BATCH_FORMAT, more=True))
    tracker.follow(transfer(1, handle=5, form=0))
    assert tracker.message_format == 0
    tracker.follow(transfer(None, form=None))

    assert tracker.message_format == BATCH_FORMAT


def test_a_repeated_delivery_id_is_corrected_and_nothing_else_is_changed() -> None:
    tracker = DeliveryTracker()
    first, again, after = transfer(300), transfer(300), transfer(302)

    assert tracker.follow(first) == first
    corrected = tracker.follow(again)
    assert tracker.follow(after) == after

    assert number_in(corrected) == 301
    assert corrected.endswith(b"payload")
    assert int.from_bytes(corrected[:4]) == len(corrected)


def test_every_frame_of_a_delivery_has_the_same_id() -> None:
    tracker = DeliveryTracker()
    tracker.follow(transfer(4))

    frames = [tracker.follow(transfer(4, more=more)) for more in (True, True, False)]

    assert [number_in(each) for each in frames] == [5, 5, 5]


def test_sessions_count_for_themselves_and_start_anew() -> None:
    tracker = DeliveryTracker()
    tracker.follow(transfer(9, channel=1))
    other = transfer(0, channel=2)
    assert tracker.follow(other) == other

    tracker.follow(frame(b"\x00\x53\x11\xc0\x01\x00", channel=1))
    restarted = transfer(0, channel=1)

    assert tracker.follow(restarted) == restarted


def test_a_delivery_cut_short_by_a_detach_is_dropped() -> None:
    tracker = DeliveryTracker()
    tracker.follow(transfer(0, form=BATCH_FORMAT, more=True))

    tracker.follow(frame(b"\x00\x53\x16" + codec.encode_list([codec.encode_uint(0)])))
    tracker.follow(transfer(1, form=0))

    assert tracker.message_format == 0


def attach(name: str, handle: int, channel: int = 0) -> bytes:
    fields = [codec.encode_string(name), codec.encode_uint(handle), b"\x42"]
    return frame(b"\x00\x53\x12" + codec.encode_list(fields), channel)


def looked_ahead(tracker: DeliveryTracker, sent: bytes) -> Transfer | None:
    found = performative(sent)
    assert found is not None
    return tracker.look_ahead(sent, found)


def test_a_transfer_is_known_by_its_link_before_it_is_followed() -> None:
    tracker = DeliveryTracker()
    for sent in (attach("a", 0), attach("b", 1), attach("c", 0, channel=1)):
        tracker.follow(sent)

    assert looked_ahead(tracker, transfer(0, handle=1, more=True)) == Transfer("b", begins=True, ends=False)
    tracker.follow(transfer(0, handle=1, more=True))
    assert looked_ahead(tracker, transfer(None, handle=1)) == Transfer("b", begins=False, ends=True)
    assert looked_ahead(tracker, transfer(0, channel=1)) == Transfer("c", begins=True, ends=True)


def test_a_link_is_dropped_when_it_is_detached_or_its_session_ends() -> None:
    tracker = DeliveryTracker()
    for sent in (attach("a", 0), attach("b", 1), attach("c", 0, channel=1)):
        tracker.follow(sent)
    tracker.follow(frame(b"\x00\x53\x16" + codec.encode_list([codec.encode_uint(1)])))
    tracker.follow(frame(b"\x00\x53\x17\x45", channel=1))

    assert looked_ahead(tracker, transfer(0)) is not None
    assert looked_ahead(tracker, transfer(0, handle=1)) is None
    assert looked_ahead(tracker, transfer(0, channel=1)) is None


@given(st.binary(max_size=60))
def test_looking_at_what_is_malformed_does_no_harm(junk: bytes) -> None:
    for sent in (junk, *(frame(b"\x00\x53" + code + junk) for code in (b"\x12", b"\x14", b"\x16"))):
        tracker = DeliveryTracker()
        found = performative(sent)
        if found is not None:
            tracker.look_ahead(sent, found)
        tracker.follow(sent)


def test_the_middle_of_the_last_frame_of_a_kind_is_found() -> None:
    first, other, last = transfer(1), frame(b"\x00\x53\x13\x45"), transfer(2)

    assert middle_of_last(first + other + last + other, TRANSFER) == len(first + other) + len(last) // 2
    assert middle_of_last(other, TRANSFER) is None
    assert middle_of_last(b"", TRANSFER) is None


def test_a_transfer_is_cut_before_its_first_frame_or_in_the_middle_of_its_last(clock: FakeClock) -> None:
    faults, tracker = Faults[FaultPlan](clock.timers.now, clock.timers.call_at), DeliveryTracker()
    link = SimpleNamespace(name="a")
    endpoint = SimpleNamespace(role=Role.SENDER, faults=LinkFaults(faults, "t", Role.SENDER))
    links = SimpleNamespace(items=lambda: [(link, endpoint)])
    frame_faults = FrameFaults(tracker, cast(LinkTable, links))
    first, last = transfer(0, more=True), transfer(None)
    tracker.follow(attach("a", 0))

    faults.inject(FaultPlan.from_json({"kind": "cut-mid-frame", "entity": "t", "direction": "in", "reset": True}))
    assert frame_faults.find_cut(first) is None
    tracker.follow(first)
    faults.inject(FaultPlan.from_json({"kind": "cut-before-transfer", "entity": "t"}))
    assert frame_faults.find_cut(transfer(0, handle=1)) is None
    assert frame_faults.find_cut(last) == Cut(len(last) // 2, reset=True)
    tracker.follow(last)
    assert frame_faults.find_cut(transfer(1)) == Cut(0, reset=False)
    assert not faults.any_pending


# The AMQP encodings the broker reads and writes itself, against Proton's


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=400),
    st.binary(max_size=400),
    st.uuids(),
)


def by_proton(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


@given(PLAIN)
def test_what_is_encoded_decodes_to_the_same_value(value: Any) -> None:
    encoded = codec.encode_value(value)

    assert codec.decode(encoded) == (value, len(encoded))
    assert codec.skip(encoded, 0) == len(encoded)


@given(st.dictionaries(st.text(max_size=20), PLAIN, max_size=40))
def test_maps_that_proton_encodes_are_understood(values: dict[str, Any]) -> None:
    encoded = by_proton(values)

    assert codec.decode(encoded) == (values, len(encoded))
    assert codec.skip(encoded, 0) == len(encoded)
    assert b"".join(codec.items(encoded, 0)) in encoded


@given(st.lists(PLAIN, max_size=300))
def test_lists_that_this_encodes_are_understood_by_proton(values: list[Any]) -> None:
    encoded = codec.encode_list([codec.encode_value(value) for value in values])

    data = Data()
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    data.next()
    decoded: Any = data.get_object()
    assert [_plain(value) for value in decoded] == values


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (codec.encode_timestamp(-5), -5),
        (codec.encode_uint(2**32 - 1), 2**32 - 1),
        (codec.encode_int(-(2**31)), -(2**31)),
        (codec.encode_symbol("x-opt-y"), "x-opt-y"),
        (by_proton(timestamp(12)), 12),
        (b"\x43", 0),
        (b"\x56\x01", True),
        (b"\x53\xff", 255),
        (b"\x54\xff", -1),
        (b"\x73\x00\x00\x00\x41", "A"),
        (b"\xe0\x04\x02\x54\x01\xff", [1, -1]),
        (b"\xf0\x00\x00\x00\x07\x00\x00\x00\x02\x54\x01\xff", [1, -1]),
        (b"\x98" + bytes(16), UUID(int=0)),
        (b"\x00\x53\x24\x45", []),
    ],
)
def test_each_encoding_has_its_value(encoded: bytes, value: Any) -> None:
    assert codec.decode(encoded) == (value, len(encoded))
    assert codec.skip(encoded, 0) == len(encoded)


@pytest.mark.parametrize(
    "broken", [b"", b"\xa1\x05ab", b"\x01", b"\xc1\x09\x02", b"\xd0\xff\xff\xff\xff\0\0\0\0", b"\x80\0"]
)
def test_broken_bytes_are_refused_and_never_read_past_their_end(broken: bytes) -> None:
    with pytest.raises(codec.DECODE_ERRORS):
        codec.decode(broken)
    with pytest.raises(codec.DECODE_ERRORS):
        codec.skip(broken, 0)


def test_a_char_beyond_unicode_is_refused() -> None:
    with pytest.raises(codec.CodecError, match="0x110000 is no character"):
        codec.decode(b"\x73\x00\x11\x00\x00")


@given(st.binary(max_size=60))
def test_no_bytes_whatever_raise_anything_but_a_decode_error(noise: bytes) -> None:
    with contextlib.suppress(*codec.DECODE_ERRORS):
        codec.decode(noise)
