"""Frames of AMQP: the peer's performatives by the names of their fields, and the frames of a delivery.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, part 2.7
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html, part 1.2
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

# How this side numbers its session and its link. The SDK's session has channel 1; the peer has numbers of its own.
CHANNEL = 2
HANDLE = 0

OPEN = 0x10
BEGIN = 0x11
ATTACH = 0x12
FLOW = 0x13
TRANSFER = 0x14
DISPOSITION = 0x15
DETACH = 0x16
END = 0x17
CLOSE = 0x18


class Begin(NamedTuple):
    """The peer has begun a session. Further fields are not read."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int


class Attach(NamedTuple):
    """The peer has attached a link."""

    name: str | bytes
    handle: int
    role: bool
    snd_settle_mode: int | None
    rcv_settle_mode: int | None
    source: Any
    target: Any
    unsettled: Any
    incomplete_unsettled: bool | None
    initial_delivery_count: int | None
    max_message_size: int | None
    offered_capabilities: Any
    desired_capabilities: Any
    properties: dict[Any, Any] | None


class Flow(NamedTuple):
    """The peer's state of the session, and of a link if it names a handle. `properties` is not read."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None
    delivery_count: int | None
    link_credit: int | None
    available: int | None
    drain: bool | None
    echo: bool | None


class Detach(NamedTuple):
    """The peer has detached a link."""

    handle: int
    closed: bool | None
    error: Any


class Ended(NamedTuple):
    """The peer has ended a session, or closed the connection."""

    error: Any


_PerformativeT = TypeVar("_PerformativeT", bound=NamedTuple)


def read(performative: type[_PerformativeT], fields: list[Any]) -> _PerformativeT:
    """Return the fields of a frame, as `sdk.decode` returns them, by their names.

    Raises TypeError if some are missing.

    A disposition has no names: there may be one for each delivery.
    """
    return performative._make(fields[: len(performative._fields)])


# Frame header; descriptor 0x14; a list of six fields, 27 bytes with their count: handle, delivery-id,
# delivery-tag, message-format, settled (false), more.
_TRANSFER = struct.Struct(">IBBH 3s BBB BI BI BB4s BI BB".replace(" ", ""))
_MORE, _LAST = 0x41, 0x42
_HEADER_BYTES = _TRANSFER.size
# Four more fields: rcv-settle-mode, state and resume, which are null or false, and aborted (true).
_ABORTED = b"\x40\x40\x42\x41"


def transfer(delivery_id: int, message_format: int, payload: bytes, max_frame_bytes: int) -> Iterator[bytes]:
    """Yield the frames of a delivery, the first of which says everything that the others repeat."""
    room = max_frame_bytes - _HEADER_BYTES
    for at in range(0, len(payload), room):
        part = payload[at : at + room]
        more = _MORE if at + room < len(payload) else _LAST
        yield _performative(delivery_id, message_format, more, 6, len(part)) + part


def abort(delivery_id: int, message_format: int) -> bytes:
    """Return the frame that ends a delivery without its remaining payload.

    The peer discards it, and answers nothing.
    """
    return _performative(delivery_id, message_format, _LAST, 10, len(_ABORTED)) + _ABORTED


def _performative(delivery_id: int, message_format: int, more: int, fields: int, following: int) -> bytes:
    """Return a transfer's performative, up to the field `more`; `following` bytes come after it."""
    return _TRANSFER.pack(
        _HEADER_BYTES + following, 2, 0, CHANNEL, b"\x00S\x14",
        0xC0, _HEADER_BYTES - 13 + (following if fields > 6 else 0), fields,
        0x70, HANDLE, 0x70, delivery_id, 0xA0, 4, delivery_id.to_bytes(4, "big"), 0x70, message_format, 0x42, more,
    )  # fmt: skip


_OUTCOMES = {0x23: "received", 0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}
# The fields of an attach, the performative with the most.
_MOST_FIELDS = 14
# Deeper than an error within a rejection within a disposition; values nested deeper are skipped.
_DEPTH = 8

_CONSTANTS: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
_UNSIGNED = frozenset((0x50, 0x52, 0x53, 0x60, 0x70, 0x80))
_TEXTS = frozenset((0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3))
_LISTS = frozenset((0xC0, 0xD0))
_BOOLEAN = 0x56
# Bytes of a fixed width, and bytes of the size of a variable one, by the first half of the constructor.
FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
SIZED = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}


def decode(data: memoryview) -> tuple[int, list[Any]]:
    """Decode a performative's code, and its fields; those left out, and those skipped, are None.

    An error's `info` may hold any AMQP type, also those that the SDK's decoder does not know. What the relay needs
    of a frame is numbers, names and outcomes; maps, arrays and other types are skipped by their size.

    Raises:
        ValueError: It is no performative.
    """
    try:
        if data[0] != 0:
            raise ValueError("a frame without a performative")
        code, at = _value(data, 1, 0)
        fields, _ = _value(data, at, 0)
    except IndexError as error:
        raise ValueError("a frame that ends within a value") from error
    if isinstance(code, int) and isinstance(fields, list):
        return code, fields + [None] * (_MOST_FIELDS - len(fields))
    raise ValueError("a frame without a performative")


def _value(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    """Return the value at `at`, and where the next one begins."""
    constructor = data[at]
    at += 1
    if constructor == 0:
        return _described(data, at, depth)
    if constructor in _CONSTANTS:
        return _CONSTANTS[constructor], at
    kind = constructor >> 4
    if (width := FIXED.get(kind)) is not None:
        end = at + width
    elif (width := SIZED.get(kind)) is not None:
        end = at + width + int.from_bytes(data[at : at + width], "big")
        at += width
    else:
        raise ValueError(f"the constructor {constructor:#x} is of no AMQP type")
    if end > len(data):
        raise ValueError("a frame that ends within a value")
    if constructor in _UNSIGNED:
        return int.from_bytes(data[at:end], "big"), end
    if constructor in _TEXTS:
        return bytes(data[at:end]), end
    if constructor == _BOOLEAN:
        return data[at] == 1, end
    if constructor in _LISTS and depth < _DEPTH:
        return _list(data, at, end, width, depth), end
    return None, end


def _described(data: memoryview, at: int, depth: int) -> tuple[Any, int]:
    if depth >= 2 * _DEPTH:
        raise ValueError("descriptors of descriptors")
    descriptor, at = _value(data, at, depth + 1)
    value, at = _value(data, at, depth + 1)
    outcome = _OUTCOMES.get(descriptor) if isinstance(descriptor, int) else None
    return (value if outcome is None else {outcome: value or []}), at


def _list(data: memoryview, at: int, end: int, width: int, depth: int) -> list[Any]:
    count = int.from_bytes(data[at : at + width], "big")
    at += width
    values: list[Any] = []
    for _ in range(count):
        if at >= end:
            raise ValueError("a list that is shorter than its count")
        value, at = _value(data, at, depth + 1)
        values.append(value)
    return values
