"""The parser of the commands, and the types of their arguments, which say what is wrong with a value."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """A parser whose errors about numbers have an example."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("type", int, whole_number)


def reported(parse: Callable[[str], T]) -> Callable[[str], T]:
    """`parse` as the type of an argument: argparse shows the text of its ValueError, not the function's name."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def whole_number(text: str) -> int:
    """A whole number from 0. Raises argparse.ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write it as 3")
    return int(text)


def positive(text: str) -> int:
    """A whole number above 0. Raises argparse.ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0: write it as 100")
    return int(text)
