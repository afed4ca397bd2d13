"""Mathematical functions, and those of 64-bit integers, which wrap around as in C++."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

from outbox_relay.emulators.cosmos.query.functions.definitions import Function, integer_of, of_numbers
from outbox_relay.emulators.cosmos.query.values import UNDEFINED

_WRAP, _SIGN = 1 << 64, 1 << 63


def _round(number: float) -> float:
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)


def _bin(number: float, size: float = 1) -> float:
    return math.floor(number / size) * size


def _integers(call: Callable[..., int], count: int) -> Function:
    def checked(*arguments: Any) -> Any:
        numbers = [integer_of(argument) for argument in arguments]
        if None in numbers:
            return UNDEFINED
        try:
            return (call(*numbers) + _SIGN) % _WRAP - _SIGN
        except (ZeroDivisionError, ValueError, OverflowError):
            return UNDEFINED

    return Function(checked, count, count)


def _quotient(left: int, right: int) -> int:
    """Return the quotient, rounded towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _shift_left(number: int, bits: int) -> int:
    return number << (bits % 64)


MATHEMATICAL: dict[str, Function] = {
    "ABS": of_numbers(abs, 1),
    "ACOS": of_numbers(math.acos, 1),
    "ASIN": of_numbers(math.asin, 1),
    "ATAN": of_numbers(math.atan, 1),
    "ATN2": of_numbers(math.atan2, 2),
    "CEILING": of_numbers(math.ceil, 1),
    "COS": of_numbers(math.cos, 1),
    "COT": of_numbers(lambda number: 1 / math.tan(number), 1),
    "DEGREES": of_numbers(math.degrees, 1),
    "EXP": of_numbers(math.exp, 1),
    "FLOOR": of_numbers(math.floor, 1),
    "INTADD": _integers(operator.add, 2),
    "INTBITAND": _integers(operator.and_, 2),
    "INTBITLEFTSHIFT": _integers(_shift_left, 2),
    "INTBITNOT": _integers(operator.invert, 1),
    "INTBITOR": _integers(operator.or_, 2),
    "INTBITRIGHTSHIFT": _integers(lambda number, bits: number >> (bits % 64), 2),
    "INTBITXOR": _integers(operator.xor, 2),
    "INTDIV": _integers(_quotient, 2),
    "INTMOD": _integers(lambda left, right: left - right * _quotient(left, right), 2),
    "INTMUL": _integers(operator.mul, 2),
    "INTSUB": _integers(operator.sub, 2),
    "LOG": of_numbers(math.log, 2, optional=1),
    "LOG10": of_numbers(math.log10, 1),
    "NUMBERBIN": of_numbers(_bin, 2, optional=1),
    "PI": Function(lambda: math.pi, 0, 0),
    "POWER": of_numbers(math.pow, 2),
    "RADIANS": of_numbers(math.radians, 1),
    "RAND": Function(random.random, 0, 0),
    "ROUND": of_numbers(_round, 1),
    "SIGN": of_numbers(lambda number: (number > 0) - (number < 0), 1),
    "SIN": of_numbers(math.sin, 1),
    "SQRT": of_numbers(math.sqrt, 1),
    "SQUARE": of_numbers(lambda number: number * number, 1),
    "TAN": of_numbers(math.tan, 1),
    "TRUNC": of_numbers(math.trunc, 1),
}
