"""The peer's performatives, by the names of their fields; and the frames of a delivery, which are packed here.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, part 2.7
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

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
    """How far the peer is with the session, and with a link if it names a handle. `properties` is not read."""

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
    """The fields of a frame, as `sdk.decode` returns them, by their names. TypeError if some are missing.

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


def transfer(
    channel: int, handle: int, delivery_id: int, message_format: int, payload: bytes, max_frame_bytes: int
) -> Iterator[bytes]:
    """The frames of a delivery, the first of which says everything that the others repeat."""
    room = max_frame_bytes - _HEADER_BYTES
    for at in range(0, len(payload), room):
        part = payload[at : at + room]
        more = _MORE if at + room < len(payload) else _LAST
        yield _performative(channel, handle, delivery_id, message_format, more, 6, len(part)) + part


def abort(channel: int, handle: int, delivery_id: int, message_format: int) -> bytes:
    """The frame that ends a delivery without its remaining payload: the peer discards it, and answers nothing."""
    return _performative(channel, handle, delivery_id, message_format, _LAST, 10, len(_ABORTED)) + _ABORTED


def _performative(
    channel: int, handle: int, delivery_id: int, message_format: int, more: int, fields: int, following: int
) -> bytes:
    """A transfer's performative, up to the field `more`; `following` bytes come after it."""
    return _TRANSFER.pack(
        _HEADER_BYTES + following, 2, 0, channel, b"\x00S\x14",
        0xC0, _HEADER_BYTES - 13 + (following if fields > 6 else 0), fields,
        0x70, handle, 0x70, delivery_id, 0xA0, 4, delivery_id.to_bytes(4, "big"), 0x70, message_format, 0x42, more,
    )  # fmt: skip
