"""Decoding values, and skipping over those that are not of interest."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from uuid import UUID

from outbox_relay.emulators.servicebus.codec.decimals import decode_decimal
from outbox_relay.emulators.servicebus.codec.types import (
    DESCRIBED,
    UNIX_EPOCH_TICKS,
    CodecError,
    Moment,
    Symbol,
    TimeSpan,
    Timestamp,
    Value,
)

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")

# The items of an array may take no bytes at all: their number needs its own bound.
_MOST_EMPTY_ITEMS = 255

_LAST_CHARACTER = 0x10FFFF

_NULL = 0x40
_DATETIME_OFFSET, _TIME_SPAN = "com.microsoft:datetime-offset", "com.microsoft:timespan"


_Reader = Callable[[bytes, int], tuple[Value, int]]


def _fixed(layout: struct.Struct) -> _Reader:
    size = layout.size
    unpack = layout.unpack_from

    def read(data: bytes, at: int) -> tuple[Value, int]:
        return unpack(data, at)[0], at + size

    return read


def _constant(value: Value) -> _Reader:
    return lambda data, at: (value, at)


def _read_ubyte(data: bytes, at: int) -> tuple[int, int]:
    return data[at], at + 1


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] == 1, at + 1


def _read_char(data: bytes, at: int) -> tuple[str, int]:
    code = _U32.unpack_from(data, at)[0]
    if code > _LAST_CHARACTER:
        raise CodecError(f"0x{code:x} is no character")
    return chr(code), at + 4


def _read_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    return UUID(bytes=_take(data, at, 16)), at + 16


def _decimal(size: int) -> _Reader:
    return lambda data, at: (decode_decimal(_take(data, at, size)), at + size)


def _read_timestamp(data: bytes, at: int) -> tuple[Timestamp, int]:
    return Timestamp(_I64.unpack_from(data, at)[0]), at + 8


def _take(data: bytes, at: int, size: int) -> bytes:
    end = at + size
    if end > len(data):
        raise CodecError(f"{size} bytes wanted at {at}, {len(data) - at} left")
    return data[at:end]


def _variable8(convert: Callable[[bytes], Value]) -> _Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        start = at + 1
        end = start + data[at]
        if end > len(data):
            raise CodecError(f"{end - start} bytes wanted at {start}, {len(data) - start} left")
        return convert(data[start:end]), end

    return read


def _variable32(convert: Callable[[bytes], Value]) -> _Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        size = _U32.unpack_from(data, at)[0]
        return convert(_take(data, at + 4, size)), at + 4 + size

    return read


def _symbol(data: bytes) -> Symbol:
    return Symbol(data.decode("ascii"))


def _compound(wide: bool, *, empty_items: int = 0) -> Callable[[bytes, int], tuple[int, int, int]]:
    """Read size and count; return the count, where the items start, and where the compound ends.

    `empty_items` of them may take no bytes.
    """

    def read(data: bytes, at: int) -> tuple[int, int, int]:
        if wide:
            size, count = _U32.unpack_from(data, at)[0], _U32.unpack_from(data, at + 4)[0]
            start, end = at + 8, at + 4 + size
        else:
            size, count = data[at], data[at + 1]
            start, end = at + 2, at + 1 + size
        if end > len(data) or count > max(size, empty_items):
            raise CodecError(f"a compound of {count} items in {size} bytes at {at} is not possible")
        return count, start, end

    return read


def _ended(at: int, end: int) -> int:
    """Return the end of a compound whose items were read up to `at`.

    Without this check, compounds could overlap, and reading them take exponential time.
    """
    if at > end:
        raise CodecError(f"the items of a compound that ends at {end} run to {at}")
    return end


def _list(wide: bool) -> _Reader:
    read_frame = _compound(wide)

    def read(data: bytes, at: int) -> tuple[list[Value], int]:
        count, at, end = read_frame(data, at)
        items: list[Value] = []
        for _ in range(count):
            # Most fields of most lists are null.
            code = data[at]
            if code == _NULL:
                items.append(None)
                at += 1
            else:
                reader = _READERS.get(code)
                item, at = decode(data, at) if reader is None else reader(data, at + 1)
                items.append(item)
        return items, _ended(at, end)

    return read


def _map(wide: bool) -> _Reader:
    read_frame = _compound(wide)

    def read(data: bytes, at: int) -> tuple[dict[Value, Value], int]:
        count, at, end = read_frame(data, at)
        items: dict[Value, Value] = {}
        for _ in range(count // 2):
            key, at = decode(data, at)
            items[key], at = decode(data, at)
        return items, _ended(at, end)

    return read


def _array(wide: bool) -> _Reader:
    read_frame = _compound(wide, empty_items=_MOST_EMPTY_ITEMS)

    def read(data: bytes, at: int) -> tuple[list[Value], int]:
        count, at, end = read_frame(data, at)
        code = data[at]
        at += 1
        if code == DESCRIBED:
            _, at = decode(data, at)
            code = data[at]
            at += 1
        reader = _reader(code)
        items = []
        for _ in range(count):
            item, at = reader(data, at)
            items.append(item)
        return items, _ended(at, end)

    return read


_READERS: dict[int, _Reader] = {
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(0),
    0x44: _constant(0),
    0x45: lambda data, at: ([], at),
    0x50: _read_ubyte,
    0x51: _fixed(_I8),
    0x52: _read_ubyte,
    0x53: _read_ubyte,
    0x54: _fixed(_I8),
    0x55: _fixed(_I8),
    0x56: _read_boolean,
    0x60: _fixed(_U16),
    0x61: _fixed(_I16),
    0x70: _fixed(_U32),
    0x71: _fixed(_I32),
    0x72: _fixed(_F32),
    0x73: _read_char,
    0x74: _decimal(4),
    0x80: _fixed(_U64),
    0x81: _fixed(_I64),
    0x82: _fixed(_F64),
    0x83: _read_timestamp,
    0x84: _decimal(8),
    0x94: _decimal(16),
    0x98: _read_uuid,
    0xA0: _variable8(bytes),
    0xA1: _variable8(bytes.decode),
    0xA3: _variable8(_symbol),
    0xB0: _variable32(bytes),
    0xB1: _variable32(bytes.decode),
    0xB3: _variable32(_symbol),
    0xC0: _list(wide=False),
    0xC1: _map(wide=False),
    0xD0: _list(wide=True),
    0xD1: _map(wide=True),
    0xE0: _array(wide=False),
    0xF0: _array(wide=True),
}

# The constructor's high nibble is the width (OASIS AMQP 1.0, part 1, figure 1.3).
_FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def _reader(code: int) -> _Reader:
    try:
        return _READERS[code]
    except KeyError:
        raise CodecError(f"0x{code:02x} is no AMQP 1.0 constructor") from None


def decode(data: bytes, at: int = 0) -> tuple[Value, int]:
    """Decode the value at `at`; return it and the offset after it.

    Descriptors are skipped, but for those of .NET's DateTimeOffset and TimeSpan, which Service Bus has as ticks
    ("AMQP 1.0 protocol guide", learn.microsoft.com).

    Raises one of `DECODE_ERRORS` when the bytes are not valid.
    """
    code = data[at]
    if code == DESCRIBED:
        descriptor, at = decode(data, at + 1)
        value, at = decode(data, at)
        if descriptor == _DATETIME_OFFSET and isinstance(value, int):
            value = Moment(value - UNIX_EPOCH_TICKS)
        elif descriptor == _TIME_SPAN and isinstance(value, int):
            value = TimeSpan(value)
        return value, at
    return _reader(code)(data, at + 1)


DECODE_ERRORS = (ValueError, IndexError, struct.error, TypeError, RecursionError)
"""All that decoding bytes that are not AMQP can raise; CodecError and UnicodeDecodeError are ValueErrors."""


_NARROW, _WIDE = _compound(wide=False), _compound(wide=True)


def skip(data: bytes, at: int) -> int:
    """Return the offset after the value at `at` without decoding it."""
    code = data[at]
    if code == DESCRIBED:
        return skip(data, skip(data, at + 1))
    kind = code >> 4
    if kind in _FIXED_WIDTHS:
        end = at + 1 + _FIXED_WIDTHS[kind]
    elif kind in (0xA, 0xC, 0xE):
        end = at + 2 + data[at + 1]
    elif kind in (0xB, 0xD, 0xF):
        end = at + 5 + int(_U32.unpack_from(data, at + 1)[0])
    else:
        raise CodecError(f"0x{code:02x} is no AMQP 1.0 constructor")
    if end > len(data):
        raise CodecError(f"the value at {at} runs past the end")
    return end


def items(data: bytes, at: int) -> Iterator[bytes]:
    """Yield the encodings, undecoded, of the items of the list or map at `at` (keys and values)."""
    code = data[at]
    if code == 0x45:
        return
    if code not in (0xC0, 0xC1, 0xD0, 0xD1):
        raise CodecError(f"0x{code:02x} is neither a list nor a map")
    count, at, end = (_WIDE if code >= 0xD0 else _NARROW)(data, at + 1)
    for _ in range(count):
        start, at = at, skip(data, at)
        _ended(at, end)
        yield data[start:at]
