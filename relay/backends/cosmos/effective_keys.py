"""Effective partition keys: the hexadecimal strings by which the ranges of a container are divided.

The SDK's `feed_range_from_partition_key` takes 100 to 200 µs, too long for a page of 100 000 keys. So strings in a
container with the current version of hashing are hashed here, in 8 µs: MurmurHash3, the 128-bit variant for x64
with seed 0 (Austin Appleby, public domain, https://github.com/aappleby/smhasher), of the value's type (8 is a
string), its UTF-8 and 0xFF, with the first two bits cleared (azure.cosmos.partition_key).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_WORD = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

# Maximum number of keys that are remembered: a batch has at most as many.
_KEYS = 100_000


class EffectiveKeys:
    """The effective partition keys of one container. Each is worked out once."""

    def __init__(self, container: ContainerProxy, definition: Mapping[str, Any]) -> None:
        """Create the hash of keys; `definition` is the member `partitionKey` of the container's definition."""
        self._container = container
        self._hashes_strings = definition.get("kind") == "Hash" and definition.get("version") == 2
        self._known: dict[tuple[type, Any], str] = {}

    async def of(self, value: Any) -> str | None:
        """Return the effective key of a partition key value, as the SDK takes it, or None without one.

        Raises AzureError.
        """
        name = (type(value), value)
        known = self._known.get(name)
        if known is None:
            try:
                known = await self._compute(value)
            except (UnicodeEncodeError, OverflowError):
                # Half of a surrogate pair, or an integer beyond the doubles.
                return None
            if len(self._known) >= _KEYS:
                self._known.clear()
            self._known[name] = known
        return known

    async def _compute(self, value: Any) -> str:
        if self._hashes_strings and type(value) is str:
            return effective_key(value)
        feed_range = await self._container.feed_range_from_partition_key(value)
        return str(feed_range["Range"]["min"])


def effective_key(partition_key: str) -> str:
    """Return the effective partition key of a string, hashed by version 2. Raises UnicodeEncodeError."""
    data = b"\x08" + partition_key.encode() + b"\xff"
    return f"{_murmur3(data) & ((1 << 126) - 1):032X}"


def _murmur3(data: bytes) -> int:
    """128 bits, the first word in the lower half."""
    first = second = 0
    # The last block is filled with zeros, and is mixed in without being rotated.
    size = len(data) & ~15
    for one, other in struct.iter_unpack("<QQ", data[:size]):
        first = ((_turned(first ^ _first(one), 27) + second) * 5 + 0x52DCE729) & _WORD
        second = ((_turned(second ^ _second(other), 31) + first) * 5 + 0x38495AB5) & _WORD
    one, other = struct.unpack("<QQ", data[size:].ljust(16, b"\x00"))
    first ^= _first(one) ^ len(data)
    second ^= _second(other) ^ len(data)
    first = (first + second) & _WORD
    second = (second + first) & _WORD
    first, second = _final(first), _final(second)
    first = (first + second) & _WORD
    return ((second + first) & _WORD) << 64 | first


def _first(word: int) -> int:
    return _turned(word * _C1 & _WORD, 31) * _C2 & _WORD


def _second(word: int) -> int:
    return _turned(word * _C2 & _WORD, 33) * _C1 & _WORD


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _WORD


def _final(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return word ^ word >> 33
