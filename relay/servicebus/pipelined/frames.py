"""The frames of a delivery: there are one or more for each send, so they are packed here.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, part 2.7.5
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

OPEN = 0x10
BEGIN = 0x11
ATTACH = 0x12
FLOW = 0x13
TRANSFER = 0x14
DISPOSITION = 0x15
DETACH = 0x16
END = 0x17
CLOSE = 0x18

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
