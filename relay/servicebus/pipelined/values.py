"""Decodes a performative whose fields hold types that the SDK's decoder does not know.

An error's `info` may hold any AMQP type, described ones included. What the relay needs of a frame is numbers,
names and outcomes; maps, arrays and other types are skipped by their size, which every encoding has.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html, part 1.2
"""

from __future__ import annotations

from typing import Any

_OUTCOMES = {0x23: "received", 0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}
# The fields of an attach, the performative with the most.
_MOST_FIELDS = 14
# Deeper than an error within a rejection within a disposition; what is nested deeper is skipped.
_DEPTH = 8

_CONSTANTS: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
_UNSIGNED = frozenset((0x50, 0x52, 0x53, 0x60, 0x70, 0x80))
_TEXTS = frozenset((0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3))
_LISTS = frozenset((0xC0, 0xD0))
_BOOLEAN = 0x56
# Bytes of a fixed width, and bytes of the size of a variable one, by the first half of the constructor.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZED = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}


def performative(data: memoryview) -> tuple[int, list[Any]]:
    """A performative's code, and its fields; those left out, and those skipped, are None.

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
    """The value at `at`, and where the next one begins."""
    constructor = data[at]
    at += 1
    if constructor == 0:
        return _described(data, at, depth)
    if constructor in _CONSTANTS:
        return _CONSTANTS[constructor], at
    kind = constructor >> 4
    if (width := _FIXED.get(kind)) is not None:
        end = at + width
    elif (width := _SIZED.get(kind)) is not None:
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
