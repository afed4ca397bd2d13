"""Positions in a feed: ULIDs of 16 bytes, which compare byte by byte (https://github.com/ulid/spec)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LENGTH = 16

START = bytes(LENGTH)
"""The cursor before the first event."""

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARACTERS = 26
_TIME_BYTES = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(ulid: bytes) -> int:
    """Return the time in a ULID, in milliseconds since 1970."""
    return int.from_bytes(ulid[:_TIME_BYTES], "big")


def time_of(ulid: bytes) -> datetime:
    """Return the time in a ULID, in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds(ulid))


def at(time: datetime) -> bytes:
    """Return the first ULID of a time with a time zone: every ULID of an earlier millisecond is below it."""
    since = max((time - _EPOCH) // timedelta(milliseconds=1), 0)
    return since.to_bytes(_TIME_BYTES, "big") + bytes(LENGTH - _TIME_BYTES)


def to_text(ulid: bytes) -> str:
    """Return the 26 characters of a ULID, in Crockford's base 32; they sort as the bytes do."""
    number = int.from_bytes(ulid, "big")
    return "".join(_DIGITS[number >> shift & 31] for shift in range(5 * (_CHARACTERS - 1), -1, -5))


def from_text(text: str) -> bytes:
    """Return the 16 bytes of a ULID written as 26 characters.

    Raises:
        ValueError: It is no ULID.
    """
    digits = text.upper()
    # Of the 130 bits, a ULID has 128: its first character is 7 at most.
    if len(digits) != _CHARACTERS or not set(digits) <= set(_DIGITS) or digits[0] > "7":
        raise ValueError(f"{text!r} is no ULID: it has 26 characters of {_DIGITS}, the first 7 at most")
    number = 0
    for digit in digits:
        number = number << 5 | _DIGITS.index(digit)
    return number.to_bytes(LENGTH, "big")
