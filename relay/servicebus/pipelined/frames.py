"""The frames of a delivery: there are one or more for each send, so they are packed here.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, part 2.7.5
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

BEGIN = 0x11
ATTACH = 0x12
FLOW = 0x13
DISPOSITION = 0x15
DETACH = 0x16
END = 0x17
CLOSE = 0x18

# Frame header; descriptor 0x14; a list of six fields, 27 bytes with their count: handle, delivery-id,
# delivery-tag, message-format, settled (false), more.
_TRANSFER = struct.Struct(">IBBH 3s BBB BI BI BB4s BI BB".replace(" ", ""))
_MORE, _LAST = 0x41, 0x42
_HEADER_BYTES = _TRANSFER.size


def transfer(
    channel: int, handle: int, delivery_id: int, message_format: int, payload: bytes, max_frame_bytes: int
) -> Iterator[bytes]:
    """The frames of a delivery, the first of which says everything that the others repeat."""
    room = max_frame_bytes - _HEADER_BYTES
    tag = delivery_id.to_bytes(4, "big")
    for at in range(0, len(payload), room):
        part = payload[at : at + room]
        more = _MORE if at + room < len(payload) else _LAST
        yield (
            _TRANSFER.pack(
                _HEADER_BYTES + len(part), 2, 0, channel, b"\x00S\x14", 0xC0, _HEADER_BYTES - 13, 6,
                0x70, handle, 0x70, delivery_id, 0xA0, 4, tag, 0x70, message_format, 0x42, more,
            )
            + part
        )  # fmt: skip
