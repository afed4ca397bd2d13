"""Safeguards and assumptions that can be taken out of a kind of universe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Control:
    """A safeguard, or an assumption about a service, and what goes wrong without it.

    Attributes:
        without: Takes it out until the block ends.
        wrong: The beginning of a violation that then has to be found.
        seeds: The universes within which it is.
    """

    without: Callable[[], AbstractContextManager[Any]]
    wrong: str
    seeds: Sequence[int]
