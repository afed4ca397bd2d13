"""Effective partition keys: the hexadecimal strings by which partition key values are ordered.

Source: azure.cosmos.partition_key, with which this must agree, as the SDK computes feed ranges itself.
Version 2 keys are hashes of 128 bits; version 1 keys a hash of 32 bits and then the values themselves.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any

from outbox_relay.emulators.cosmos.hashing import murmur3_32, murmur3_128

_V1_CHARACTERS = 100
_V1_BYTES = 100
_SIGN = 1 << 63
_MASK = (1 << 64) - 1


class Scheme(Enum):
    """How values become effective partition keys."""

    HASH_V1 = "Hash, version 1"
    HASH_V2 = "Hash, version 2"
    HIERARCHICAL = "MultiHash, version 2"


def effective_key(components: Sequence[Any], scheme: Scheme) -> str:
    """Return the effective key of JSON scalars, with `{}` for undefined."""
    match scheme:
        case Scheme.HASH_V1:
            cut = [part[:_V1_CHARACTERS] if isinstance(part, str) else part for part in components]
            hashed = murmur3_32(b"".join(_for_hashing(part, b"\x00") for part in cut))
            return b"".join(_encoded(part) for part in (float(hashed), *cut)).hex().upper()
        case Scheme.HASH_V2:
            return _hash_v2(b"".join(_for_hashing(part, b"\xff") for part in components))
        case Scheme.HIERARCHICAL:
            return "".join(_hash_v2(_for_hashing(part, b"\xff")) for part in components)


def bounds(count: int, scheme: Scheme) -> list[str]:
    """Return the bounds of `count` parts that documents fill evenly: "", the cuts, "FF"."""
    if scheme is Scheme.HASH_V1:
        cuts = [_of_hash_v1(number * (1 << 32) // count) for number in range(1, count)]
    else:
        # Hashes of version 2 have their two top bits cleared. The service rounds the width, not each cut: of five
        # parts, the fourth ends at 33…30 (test_pk_range_wrapper of azure-cosmos).
        width = (1 << 126) // count
        cuts = [f"{number * width:032X}" for number in range(1, count)]
    return ["", *cuts, "FF"]


def middle(minimum: str, maximum: str, scheme: Scheme) -> str:
    """Return the middle of a range between bounds, so that documents fill both parts evenly."""
    if scheme is Scheme.HASH_V1:
        # Their order is that of the hashes, but far from evenly spread.
        hashes = range((1 << 32) + 1)
        low, high = (bisect.bisect_left(hashes, end, key=_of_hash_v1) for end in (minimum, maximum))
        return _of_hash_v1((low + min(high, 1 << 32)) // 2)
    high = 1 << 126 if maximum == "FF" else _as_number(maximum)
    return f"{(_as_number(minimum) + high) // 2:032X}"


def _of_hash_v1(hashed: int) -> str:
    return _encoded(float(hashed)).hex().upper()


def _as_number(key: str) -> int:
    return int(key[:32].ljust(32, "0"), 16)


def _hash_v2(data: bytes) -> str:
    return f"{murmur3_128(data) & (1 << 126) - 1:032X}"


def _for_hashing(component: Any, string_end: bytes) -> bytes:
    match component:
        case None:
            return b"\x01"
        case bool():
            return b"\x03" if component else b"\x02"
        case int() | float():
            return b"\x05" + struct.pack("<d", component)
        case str():
            return b"\x08" + component.encode() + string_end
    return b"\x00"


def _encoded(component: Any) -> bytes:
    """Encode in version 1's binary form, in which bytes compare as values do."""
    match component:
        case None:
            return b"\x01"
        case bool():
            return b"\x03" if component else b"\x02"
        case float():
            return b"\x05" + _encoded_double(component)
        case str():
            data = component.encode()
            short = len(data) <= _V1_BYTES
            kept = bytes(byte + 1 for byte in data[: _V1_BYTES + 1])
            return b"\x08" + kept + (b"\x00" if short else b"")
    return b"\x00"


def _encoded_double(value: float) -> bytes:
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    payload = bits ^ _SIGN if bits < _SIGN else -bits & _MASK
    encoded = bytearray([payload >> 56])
    payload = payload << 8 & _MASK
    # Seven bits to a byte from here on; the lowest bit says whether another byte follows.
    while payload:
        encoded.append(payload >> 56 | 1)
        payload = payload << 7 & _MASK
    if len(encoded) == 1:
        encoded.append(0)
    encoded[-1] &= 0xFE
    return bytes(encoded)
