"""The values of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cyclopts import CoercionError, Parameter, Token


def value(parse: Callable[[str], Any], **described: Any) -> Parameter:
    """Return the parameter of an option whose value `parse` reads; its ValueError says how to write one."""

    def convert(_: type, tokens: Sequence[Token]) -> Any:
        return parse(tokens[-1].value)

    return Parameter(converter=convert, n_tokens=1, accepts_keys=False, **described)


def values(parse: Callable[[str], Any], **described: Any) -> Parameter:
    """Return the parameter of an option that may be repeated, each of whose values `parse` reads."""

    def convert(_: type, tokens: Sequence[Token]) -> Any:
        return tuple(_parsed(parse, each) for each in tokens)

    return Parameter(converter=convert, n_tokens=1, accepts_keys=False, **described)


def _parsed(parse: Callable[[str], Any], token: Token) -> Any:
    try:
        return parse(token.value)
    except ValueError as error:
        raise CoercionError(msg=str(error), token=token) from error


def whole_number(text: str) -> int:
    """Parse a whole number. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a whole number: write it as 3")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number above 0. Raises ValueError."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"{text!r} is not a whole number above 0: write it as 100")
    return int(text)


def port_number(text: str) -> int:
    """Parse a port number; 0 takes a free port. Raises ValueError."""
    if not (text.isascii() and text.isdecimal() and int(text) < 65_536):
        raise ValueError(f"{text!r} is no port: give a number from 0 to 65535")
    return int(text)


def number(text: str) -> float:
    """Parse a number. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number: write it as 30 or 0.5") from None
