"""MurmurHash3: the hash of Cosmos DB's partition keys (seed 0), and of arrays and objects in ORDER BY.

Austin Appleby's public-domain algorithms (https://github.com/aappleby/smhasher, MurmurHash3_x64_128, _x86_32).
"""

from __future__ import annotations

import struct

_MASK = 0xFFFFFFFFFFFFFFFF
_MASK_32 = 0xFFFFFFFF
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def murmur3_128(data: bytes, seed: int = 0) -> int:
    """Return the hash as an integer of 128 bits. The first of its two words is in the lower half, as in `seed`."""
    h1, h2 = seed & _MASK, seed >> 64
    length = len(data)
    blocks = length & ~15
    for k1, k2 in struct.iter_unpack("<QQ", data[:blocks]):
        h1 = ((_rotate(h1 ^ _mix_k1(k1), 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 = ((_rotate(h2 ^ _mix_k2(k2), 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[blocks:]
    h2 ^= _mix_k2(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix_k1(int.from_bytes(tail[:8], "little"))
    h1 ^= length
    h2 ^= length
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1 = _finish(h1)
    h2 = _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h2 << 64 | h1


def _mix_k1(k: int) -> int:
    return _rotate(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_k2(k: int) -> int:
    return _rotate(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finish(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & _MASK
    k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return k ^ k >> 33


def murmur3_32(data: bytes) -> int:
    """Return the 32-bit hash, variant x86 with seed 0: for version 1 keys."""
    h = 0
    blocks = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:blocks]):
        h = (_rotate_32(h ^ _mix_32(k), 13) * 5 + 0xE6546B64) & _MASK_32
    h ^= _mix_32(int.from_bytes(data[blocks:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK_32
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK_32
    return h ^ h >> 16


def _mix_32(k: int) -> int:
    return _rotate_32(k * 0xCC9E2D51 & _MASK_32, 15) * 0x1B873593 & _MASK_32


def _rotate_32(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK_32
