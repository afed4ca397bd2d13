"""Hashes of arrays and objects, in whose order ORDER BY returns them.

A client that merges physical partitions names the place where it resumes by such a hash, and sorts by it too.
Source: DistinctHash.cs, UInt128BinaryComparer.cs and SqlQueryResumeValue.cs of azure-cosmos-dotnet-v3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outbox_relay.emulators.cosmos.hashing import murmur3_128

_WORD = (1 << 64) - 1
_EXACT_BITS = 53


def _seed(low: int, high: int) -> int:
    return high << 64 | low


_ROOT = _seed(0xBFC2359EAFC0E2B7, 0x8846E00284C4CF1F)
_NULL = _seed(0x1380F68BB3B0CFE4, 0x156C918BF564EE48)
_FALSE = _seed(0xC1BE517FE893B40C, 0xE9FC8A4C531CD0DD)
_TRUE = _seed(0xF86D4ABF9A412E74, 0x788488365C8A985D)
_NUMBER = _seed(0x2400E8B894CE9C2A, 0x790BE1EABD7B9481)
_STRING = _seed(0x61F53F0A44204CFB, 0x09481BE8EF4B56DD)
_ARRAY = _seed(0xFA573B014C4DC18E, 0xA014512C858EB115)
_ARRAY_INDEX = _seed(0xFE057204216DB999, 0x5B1CC3178BD9C593)
_OBJECT = _seed(0x77B285AC511AEF30, 0x3DCF187245822449)
_PROPERTY = _seed(0xC915DDE058492A8A, 0x7C8BE2EBA72E4634)


@dataclass(frozen=True, slots=True)
class ComplexPlace:
    """The place of an array or object among others of its type."""

    type: Literal["array", "object"]
    hash: int

    @classmethod
    def read(cls, resume: Mapping[str, Any]) -> ComplexPlace:
        """Read a value of a `resumeFilter`. Raises ValueError, KeyError or TypeError if it is none."""
        kind = resume["type"]
        if kind not in ("array", "object"):
            raise ValueError(f"{kind!r} is neither array nor object")
        return cls(kind, (int(resume["high"]) & _WORD) << 64 | int(resume["low"]) & _WORD)

    @classmethod
    def of(cls, value: list[Any] | dict[str, Any]) -> ComplexPlace:
        return cls("array" if isinstance(value, list) else "object", distinct_hash(value))

    @property
    def rank(self) -> bytes:
        """Sorts as the service does: the lowest byte counts first."""
        return self.hash.to_bytes(16, "little")


def distinct_hash(value: Any) -> int:
    """Return the hash of a JSON value, 128 bits."""
    return _hash(value, _ROOT)


def _hash(value: Any, seed: int) -> int:
    match value:
        case None:
            return _mixed(_NULL, seed)
        case bool():
            return _mixed(_TRUE if value else _FALSE, seed)
        case int() | float():
            return murmur3_128(_extended_double(value), _mixed(_NUMBER, seed))
        case str():
            return _text(value, _mixed(_STRING, seed))
        case list():
            result = _mixed(_ARRAY, seed)
            for index, element in enumerate(value):
                result = _mixed(_hash(element, _ARRAY_INDEX + index), result)
            return result
    result, members = _mixed(_OBJECT, seed), 0
    for name, member in value.items():
        members ^= _hash(member, _text(name, _mixed(_STRING, _PROPERTY)))
    return _mixed(members, result) if members else result


def _mixed(word: int, seed: int) -> int:
    return murmur3_128(word.to_bytes(16, "little"), seed)


def _text(text: str, seed: int) -> int:
    return murmur3_128(text.encode("utf-8", "replace"), seed)


def _extended_double(number: float) -> bytes:
    """Return a double and the ten bits of a 64-bit integer that it has no room for (Number64.DoubleEx)."""
    magnitude = abs(number)
    if isinstance(number, float) or magnitude == 1 << 63 or _significant_bits(int(magnitude)) <= _EXACT_BITS:
        return struct.pack("<dH", number + 0.0, 0)
    top = int(magnitude).bit_length() - 1
    mantissa = int(magnitude) << 62 - top & (1 << 62) - 1
    bits = (top + 1023) << 52 | mantissa >> 10 | (1 << 63 if number < 0 else 0)
    return struct.pack("<QH", bits, (mantissa & 0x3FF) << 6)


def _significant_bits(number: int) -> int:
    return number.bit_length() - ((number & -number).bit_length() - 1) if number else 0
