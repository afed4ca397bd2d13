"""The AMQP encodings the broker reads and writes itself, against Proton's."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data, timestamp

from outbox_emulators.servicebus import codec

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


def test_an_array_cannot_claim_more_items_than_it_could_hold() -> None:
    with pytest.raises(codec.CodecError, match="not possible"):
        codec.decode(b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40")


@given(st.binary(max_size=60))
def test_no_bytes_whatever_raise_anything_but_a_decode_error(noise: bytes) -> None:
    with contextlib.suppress(*codec.DECODE_ERRORS):
        codec.decode(noise)
