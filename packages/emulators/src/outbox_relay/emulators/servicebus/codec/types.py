"""The AMQP types that have no Python type of their own, and constants of their encoding."""

from __future__ import annotations

from typing import Any, Self

DESCRIBED = 0x00
NULL = b"\x40"


class CodecError(ValueError):
    """The bytes are not valid AMQP 1.0, or a value has no encoding."""


class Symbol(str):
    """An AMQP symbol, to be encoded as one again and not as a string."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch, to be encoded as a timestamp again and not as a number."""

    __slots__ = ()


TICKS_PER_MS = 10_000
"""A tick of .NET is 100 ns."""
UNIX_EPOCH_TICKS = 621_355_968_000_000_000
"""The Unix epoch in ticks since the first moment of .NET."""


class Moment(Timestamp):
    """A moment to the tick, as .NET has it: `ticks` are those since the Unix epoch.

    It equals a Timestamp only if it has nothing below the millisecond. `local` ones were given without a zone.
    """

    ticks: int
    local: bool

    def __new__(cls, ticks: int, *, local: bool = False) -> Self:
        made = super().__new__(cls, ticks // TICKS_PER_MS)
        made.ticks, made.local = ticks, local
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.ticks == _ticks(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: int) -> bool:
        return self.ticks < _ticks(other)

    def __le__(self, other: int) -> bool:
        return self.ticks <= _ticks(other)

    def __gt__(self, other: int) -> bool:
        return self.ticks > _ticks(other)

    def __ge__(self, other: int) -> bool:
        return self.ticks >= _ticks(other)

    def __hash__(self) -> int:
        return hash(int(self)) if self.ticks % TICKS_PER_MS == 0 else hash(self.ticks)


def _ticks(moment: int) -> int:
    return moment.ticks if isinstance(moment, Moment) else int(moment) * TICKS_PER_MS


class TimeSpan(int):
    """A duration of .NET, in ticks: `com.microsoft:timespan`. No number compares with one."""

    __slots__ = ()


class Encoded(bytes):
    """A value in the encoding that the client gave it, which says more than a Python value does."""

    __slots__ = ()


Value = Any
