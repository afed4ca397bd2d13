"""AMQP frames as they come off the wire, before the protocol engine sees them.

Two things are known only here. The engine does not tell a transfer's message-format, by which Service Bus knows a
batch from a message. And it is stricter than the service: azure-servicebus.aio gives the same delivery-id to
requests it sends at once on one management link (its AutoLockRenewer does so for every batch of messages), which
the service lets pass and the engine answers by closing the connection.

Frames are also where faults strike: before one, after one, in the middle of one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from . import codec

_PROTOCOL_HEADER_BYTES = 8
_FRAME_HEADER = struct.Struct(">IBBH")
_PERFORMATIVE = b"\x00\x53"

_BEGIN, _TRANSFER, _DETACH = 0x11, 0x14, 0x16
_HANDLE, _DELIVERY_ID, _MESSAGE_FORMAT, _MORE, _ABORTED = 0, 1, 3, 5, 9


class FrameReader:
    """Cuts a stream of bytes into protocol headers and frames of at most `largest` bytes."""

    def __init__(self, largest: int) -> None:
        self._held = bytearray()
        self._largest = largest

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each protocol header or frame that is complete now.

        What cannot be a frame is passed on as it is: it is for the engine to refuse it.
        """
        self._held += data
        while len(self._held) >= _PROTOCOL_HEADER_BYTES:
            if self._held.startswith(b"AMQP"):
                size = _PROTOCOL_HEADER_BYTES
            else:
                size = int.from_bytes(self._held[:4])
                if not _PROTOCOL_HEADER_BYTES <= size <= self._largest:
                    size = len(self._held)
            if len(self._held) < size:
                return
            frame = bytes(self._held[:size])
            del self._held[:size]
            yield frame


@dataclass(slots=True)
class _Delivery:
    """A delivery whose frames are coming in."""

    number: int
    message_format: int | None


class DeliveryTracker:
    """Follows the deliveries of a connection frame by frame.

    `message_format` is that of the delivery the last transfer frame belongs to.
    """

    def __init__(self) -> None:
        self.message_format: int | None = None
        self._next_number: dict[int, int] = {}
        self._open: dict[tuple[int, int], _Delivery] = {}

    def follow(self, frame: bytes) -> bytes:
        """Take note of a frame; return it, with its delivery-id put right where the client repeats one."""
        if len(frame) < _FRAME_HEADER.size + len(_PERFORMATIVE) + 1 or frame.startswith(b"AMQP"):
            return frame
        _, offset, kind, channel = _FRAME_HEADER.unpack_from(frame)
        at = offset * 4
        if kind != 0 or not frame.startswith(_PERFORMATIVE, at) or at + 3 > len(frame):
            return frame
        code, fields_at = frame[at + 2], at + 3
        try:
            if code == _TRANSFER:
                return self._transfer(frame, channel, fields_at)
            if code == _BEGIN:
                self._next_number.pop(channel, None)
            elif code == _DETACH:
                handle = codec.decode(next(codec.items(frame, fields_at)))[0]
                self._open.pop((channel, handle), None)
        except (*codec.DECODE_ERRORS, StopIteration):
            # A malformed frame is for the engine to refuse.
            return frame
        return frame

    def _transfer(self, frame: bytes, channel: int, at: int) -> bytes:
        encoded = list(codec.items(frame, at))
        fields = [codec.decode(each)[0] for each in encoded] + [None] * (_ABORTED + 1 - len(encoded))
        key = (channel, fields[_HANDLE])
        delivery = self._open.get(key)
        if delivery is None:
            number = self._next_number.get(channel, fields[_DELIVERY_ID])
            delivery = self._open[key] = _Delivery(number, fields[_MESSAGE_FORMAT])
            self._next_number[channel] = (number + 1) & 0xFFFFFFFF
        self.message_format = delivery.message_format
        if not fields[_MORE] or fields[_ABORTED]:
            del self._open[key]
        if fields[_DELIVERY_ID] in (None, delivery.number):
            return frame
        encoded[_DELIVERY_ID] = codec.encode_uint(delivery.number)
        rewritten = frame[_FRAME_HEADER.size : at] + codec.encode_list(encoded) + frame[codec.skip(frame, at) :]
        return struct.pack(">I", len(rewritten) + _FRAME_HEADER.size) + frame[4 : _FRAME_HEADER.size] + rewritten
