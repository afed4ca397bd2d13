"""Encoding values, those of lists and maps from items that are encoded already."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from decimal import Decimal
from uuid import UUID

from outbox_relay.emulators.servicebus.codec.decimals import encode_decimal128
from outbox_relay.emulators.servicebus.codec.types import (
    DESCRIBED,
    NULL,
    CodecError,
    Encoded,
    Symbol,
    TimeSpan,
    Timestamp,
    Value,
)

_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")


def encode_string(text: str) -> bytes:
    return _encode_variable(0xA1, text.encode("utf-8"))


def encode_symbol(text: str) -> bytes:
    """Encode a symbol. A character that ASCII lacks becomes `?`, as by the Encoding.ASCII of .NET."""
    return _encode_variable(0xA3, text.encode("ascii", errors="replace"))


def encode_symbols(texts: Iterable[str]) -> bytes:
    """Encode an array of symbols, each of at most 255 characters."""
    items = [text.encode("ascii") for text in texts]
    body = b"\xa3" + b"".join(bytes((len(item),)) + item for item in items)
    return bytes((0xE0, len(body) + 1, len(items))) + body


def encode_ubyte(number: int) -> bytes:
    return bytes((0x50, number))


def encode_binary(data: bytes) -> bytes:
    return _encode_variable(0xA0, data)


def _encode_variable(code: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((code, len(data))) + data
    return bytes((code + 0x10,)) + _U32.pack(len(data)) + data


def encode_long(number: int) -> bytes:
    return b"\x81" + _I64.pack(number)


def encode_int(number: int) -> bytes:
    return b"\x71" + _I32.pack(number)


def encode_uint(number: int) -> bytes:
    return b"\x70" + _U32.pack(number)


def encode_timestamp(milliseconds: int) -> bytes:
    """Encode a moment, in milliseconds since the Unix epoch."""
    return b"\x83" + _I64.pack(milliseconds)


def encode_value(value: Value) -> bytes:
    """Encode a plain Python value with the AMQP type nearest to it. Raises CodecError when there is none."""
    if value is None:
        return NULL
    if isinstance(value, Encoded):
        return bytes(value)
    if isinstance(value, bool):
        return b"\x41" if value else b"\x42"
    if isinstance(value, Timestamp):
        return encode_timestamp(value)
    if isinstance(value, TimeSpan):
        return bytes((DESCRIBED,)) + encode_symbol("com.microsoft:timespan") + encode_long(value)
    if isinstance(value, int):
        return encode_long(value)
    if isinstance(value, float):
        return b"\x82" + _F64.pack(value)
    if isinstance(value, Symbol):
        return encode_symbol(value)
    if isinstance(value, str):
        return encode_string(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return encode_binary(bytes(value))
    if isinstance(value, UUID):
        return b"\x98" + value.bytes
    if isinstance(value, Decimal):
        return b"\x94" + encode_decimal128(value)
    raise CodecError(f"{type(value).__name__} has no AMQP encoding here")


def encode_list(parts: list[bytes]) -> bytes:
    """Encode a list of items that are encoded already."""
    return _encode_compound(0xC0, len(parts), b"".join(parts))


def encode_map(pairs: int, body: bytes) -> bytes:
    """Encode a map of `pairs` pairs; `body` is their keys and values in turn, encoded already."""
    return _encode_compound(0xC1, pairs * 2, body)


def _encode_compound(code: int, count: int, body: bytes) -> bytes:
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code + 0x10,)) + _U32.pack(len(body) + 4) + _U32.pack(count) + body
