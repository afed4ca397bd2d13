"""The AMQP types that have no Python type of their own, and constants of their encoding."""

from __future__ import annotations

from typing import Any

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


Value = Any
