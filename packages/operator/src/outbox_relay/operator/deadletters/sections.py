"""The parts of an encoded message, found by their sizes alone.

The SDK's decoder does not know every type of AMQP 1.0, and gives text and binary data alike as bytes. A dead
letter may be one that it cannot decode, and a copy has to have the types of its original. So nothing is decoded
here but what is asked for, and everything else stays as it is encoded.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html, part 1.2
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html, part 3.2
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from relay.servicebus.pipelined.frames import FIXED, SIZED

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75

NULL = b"\x40"
"""Null, encoded."""

Scalar = None | bool | int | float | str | bytes | UUID | datetime

_DESCRIBED = 0x00
_DEPTH = 8


class Section(NamedTuple):
    """A section: its descriptor's code, and where it, its value and its successor begin."""

    code: int
    start: int
    value: int
    end: int


def sections(encoded: bytes) -> Iterator[Section]:
    """Yield the sections of a message, in order. Raises ValueError if it is no message."""
    at = 0
    while at < len(encoded):
        if encoded[at] != _DESCRIBED:
            raise ValueError("a section without a descriptor")
        value = end_of(encoded, at + 1)
        code, end = scalar(encoded, at + 1), end_of(encoded, value)
        yield Section(code if isinstance(code, int) else -1, at, value, end)
        at = end


def end_of(encoded: bytes, at: int, depth: int = 0) -> int:
    """Return the place at which the value at `at` ends. Raises ValueError if it is no value."""
    if at >= len(encoded) or depth > _DEPTH:
        raise ValueError("a value that does not end")
    constructor = encoded[at]
    if constructor == _DESCRIBED:
        return end_of(encoded, end_of(encoded, at + 1, depth + 1), depth + 1)
    start, width = _extent(encoded, at)
    if start + width > len(encoded):
        raise ValueError("a value that does not end")
    return start + width


def elements(encoded: bytes, at: int) -> list[bytes]:
    """Return the elements of the list or map at `at`, encoded: of a map, names and values by turns."""
    constructor = encoded[at]
    if constructor == 0x45:
        return []
    if constructor not in (0xC0, 0xC1, 0xD0, 0xD1):
        raise ValueError(f"{constructor:#x} is neither a list nor a map")
    start, size = _extent(encoded, at)
    width = SIZED[constructor >> 4]
    count = int.from_bytes(encoded[start : start + width], "big")
    place, end, found = start + width, start + size, []
    for _ in range(count):
        following = end_of(encoded, place)
        if following > end:
            raise ValueError("a list or map that is shorter than its count")
        found.append(encoded[place:following])
        place = following
    return found


def pairs(encoded: bytes, at: int) -> list[tuple[bytes, bytes]]:
    """Return the names and values of the map at `at`, encoded."""
    found = elements(encoded, at)
    return list(zip(found[::2], found[1::2], strict=True))


def map_section(code: int, content: list[tuple[bytes, bytes]]) -> bytes:
    """Return a section that is a map of encoded names and values."""
    return _compound(code, 0xD1, [part for pair in content for part in pair])


def list_section(code: int, content: list[bytes]) -> bytes:
    """Return a section that is a list of encoded values."""
    return _compound(code, 0xD0, content)


def _compound(code: int, constructor: int, content: list[bytes]) -> bytes:
    body = b"".join(content)
    size = (len(body) + 4).to_bytes(4, "big") + len(content).to_bytes(4, "big")
    return bytes((_DESCRIBED, 0x53, code, constructor)) + size + body


def text(encoded: bytes) -> str | None:
    """Return the text of an encoded value, converted by `as_text`."""
    return as_text(scalar(encoded, 0))


def as_text(value: Scalar) -> str | None:
    """Return a value as text: bytes as UTF-8, as which some clients send their texts; None for null."""
    if value is None or isinstance(value, str):
        return value
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def scalar(encoded: bytes, at: int) -> Scalar:
    """Return the value at `at`. Lists, maps, arrays, described and decimal values come as their encoded bytes."""
    constructor = encoded[at]
    if constructor in _CONSTANTS:
        return _CONSTANTS[constructor]
    end = end_of(encoded, at)
    if constructor not in _READERS:
        return encoded[at:end]
    start, width = _extent(encoded, at)
    return _READERS[constructor](encoded[start : start + width])


def _extent(encoded: bytes, at: int) -> tuple[int, int]:
    """Return the place at which the bytes of a value begin, and their number.

    They are behind its constructor and its size.
    """
    kind = encoded[at] >> 4
    if (width := FIXED.get(kind)) is not None:
        return at + 1, width
    if (width := SIZED.get(kind)) is None:
        raise ValueError(f"the constructor {encoded[at]:#x} is of no AMQP type")
    start = at + 1 + width
    return start, int.from_bytes(encoded[at + 1 : start], "big")


def _moment(encoded: bytes) -> datetime | bytes:
    try:
        return datetime.fromtimestamp(_signed(encoded) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return encoded


def _text(encoded: bytes) -> str:
    return encoded.decode(errors="backslashreplace")


def _signed(encoded: bytes) -> int:
    return int.from_bytes(encoded, "big", signed=True)


def _unsigned(encoded: bytes) -> int:
    return int.from_bytes(encoded, "big")


_CONSTANTS: dict[int, Scalar] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_READERS: dict[int, Callable[[bytes], Scalar]] = {
    **dict.fromkeys((0x50, 0x52, 0x53, 0x60, 0x70, 0x80), _unsigned),
    **dict.fromkeys((0x51, 0x54, 0x55, 0x61, 0x71, 0x81), _signed),
    **dict.fromkeys((0xA0, 0xB0), bytes),
    **dict.fromkeys((0xA1, 0xA3, 0xB1, 0xB3), _text),
    0x56: lambda encoded: encoded == b"\x01",
    0x72: lambda encoded: float(struct.unpack(">f", encoded)[0]),
    0x82: lambda encoded: float(struct.unpack(">d", encoded)[0]),
    0x73: lambda encoded: encoded.decode("utf-32-be", errors="backslashreplace"),
    0x83: _moment,
    0x98: lambda encoded: UUID(bytes=encoded),
}
