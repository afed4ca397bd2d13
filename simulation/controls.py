"""Safeguards and assumptions that can be taken out of a kind of universe."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Control:
    """A safeguard, or an assumption about the service, and what goes wrong without it.

    Attributes:
        without: Takes it out until the block ends.
        wrong: A violation that then has to be found.
        within: Number of universes within which it is.
        first: The first of them.
    """

    without: Callable[[], AbstractContextManager[Any]]
    wrong: str
    within: int
    first: int = 0
