"""AMQP frames as they are received, before the protocol engine sees them.

Two things are known only here. The engine does not expose a transfer's message-format, which distinguishes a batch
from a message. And it is stricter than the service: azure-servicebus.aio gives the same delivery-id to
requests it sends at once on one management link (its AutoLockRenewer does so for every batch of messages), which
the service lets pass and the engine answers by closing the connection.

Some faults are applied to frames: the connection is cut before one, or in the middle of one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from outbox_relay.emulators.servicebus import codec

_PROTOCOL_HEADER_BYTES = 8
_FRAME_HEADER = struct.Struct(">IBBH")
HEADER_BYTES = _FRAME_HEADER.size
_PERFORMATIVE = b"\x00\x53"

OPEN, BEGIN, ATTACH = 0x10, 0x11, 0x12
DETACH, END = 0x16, 0x17
TRANSFER, DISPOSITION = 0x14, 0x15
_HANDLE, _DELIVERY_ID, _MESSAGE_FORMAT, _MORE, _ABORTED = 0, 1, 3, 5, 9
_STATE = 4
HEARTBEAT = _FRAME_HEADER.pack(HEADER_BYTES, 2, 0, 0)
"""A frame without a performative."""


class Performative(NamedTuple):
    """The performative of a frame: its code, its channel, and where its list of fields begins."""

    code: int
    channel: int
    fields_at: int


def performative(frame: bytes) -> Performative | None:
    """Return the performative of an AMQP frame; None for protocol headers, SASL, empty and malformed frames."""
    if len(frame) < _FRAME_HEADER.size + len(_PERFORMATIVE) + 1 or frame.startswith(b"AMQP"):
        return None
    _, offset, kind, channel = _FRAME_HEADER.unpack_from(frame)
    at = offset * 4
    if kind != 0 or not frame.startswith(_PERFORMATIVE, at) or at + 3 > len(frame):
        return None
    return Performative(frame[at + 2], channel, at + 3)


def encode_frame(kind: int, code: int, fields: list[bytes]) -> bytes:
    """Make a frame on channel 0 of a performative whose fields are encoded already; kind 0 is AMQP, 1 SASL."""
    body = bytes((codec.DESCRIBED, 0x53, code)) + codec.encode_list(fields)
    return _FRAME_HEADER.pack(HEADER_BYTES + len(body), 2, kind, 0) + body


def middle_of_last(data: bytes, code: int) -> int | None:
    """Return the offset of the middle of the last frame with a performative, None when there is no such frame."""
    middle, at = None, 0
    for frame in FrameReader(len(data)).feed(data):
        found = performative(frame)
        if found is not None and found.code == code:
            middle = at + len(frame) // 2
        at += len(frame)
    return middle


def without_states(data: bytes) -> bytes:
    """Remove the states of dispositions, which AMQP 1.0 lets be absent (part 2, section 2.7.6)."""
    return b"".join(map(_without_state, FrameReader(len(data)).feed(data)))


def _without_state(frame: bytes) -> bytes:
    found = performative(frame)
    if found is None or found.code != DISPOSITION:
        return frame
    fields = list(codec.items(frame, found.fields_at))[:_STATE]
    rest = frame[_FRAME_HEADER.size : found.fields_at] + codec.encode_list(fields)
    return struct.pack(">I", len(rest) + _FRAME_HEADER.size) + frame[4 : _FRAME_HEADER.size] + rest


class FrameReader:
    """Cuts a stream of bytes into protocol headers and frames of at most `largest` bytes."""

    def __init__(self, largest: int) -> None:
        self._held = bytearray()
        self._largest = largest

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each protocol header or frame that is complete now.

        What cannot be a frame is passed on as it is, for the engine to refuse.
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


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer frame: the name of its link, and whether a delivery begins or ends with it."""

    link: str
    begins: bool
    ends: bool


class DeliveryTracker:
    """Follows the deliveries of a connection frame by frame.

    `message_format` is that of the delivery the last transfer frame belongs to.
    """

    def __init__(self) -> None:
        self.message_format: int | None = None
        self._next_number: dict[int, int] = {}
        self._open: dict[tuple[int, int], _Delivery] = {}
        self._links: dict[tuple[int, int], str] = {}

    def follow(self, frame: bytes) -> bytes:
        """Follow a frame; return it, with its delivery-id corrected where the client repeats one."""
        found = performative(frame)
        if found is None:
            return frame
        code, channel, at = found
        try:
            if code == TRANSFER:
                return self._transfer(frame, channel, at)
            if code == BEGIN:
                self._next_number.pop(channel, None)
            elif code == ATTACH:
                name, handle = (codec.decode(each)[0] for each in islice(codec.items(frame, at), 2))
                self._links[channel, handle] = name
            elif code == DETACH:
                handle = codec.decode(next(codec.items(frame, at)))[0]
                self._open.pop((channel, handle), None)
                self._links.pop((channel, handle), None)
            elif code == END:
                self._links = {key: name for key, name in self._links.items() if key[0] != channel}
        except (*codec.DECODE_ERRORS, StopIteration):
            # A malformed frame is for the engine to refuse.
            return frame
        return frame

    def look_ahead(self, frame: bytes, found: Performative) -> Transfer | None:
        """Return the delivery of a transfer frame that was not followed yet; None if unknown."""
        try:
            fields = [codec.decode(each)[0] for each in codec.items(frame, found.fields_at)]
            key = (found.channel, fields[_HANDLE])
            more = len(fields) > _MORE and bool(fields[_MORE])
            return Transfer(self._links[key], begins=key not in self._open, ends=not more)
        except (*codec.DECODE_ERRORS, KeyError):
            return None

    def _transfer(self, frame: bytes, channel: int, at: int) -> bytes:
        fields, _ = codec.decode(frame, at)
        fields += [None] * (_ABORTED + 1 - len(fields))
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
        encoded = list(codec.items(frame, at))
        encoded[_DELIVERY_ID] = codec.encode_uint(delivery.number)
        rewritten = frame[_FRAME_HEADER.size : at] + codec.encode_list(encoded) + frame[codec.skip(frame, at) :]
        return struct.pack(">I", len(rewritten) + _FRAME_HEADER.size) + frame[4 : _FRAME_HEADER.size] + rewritten
