"""The shapes of values that are stored as JSON, as the annotations of fields say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OBJECT, ARRAY = "object", "array"
"""The kinds of JSON in which dataclasses can be."""


class Unmapped(TypeError):
    """The annotations of a class do not say how to store a field and how to read it again.

    Attributes:
        path: Where, from the field on: `lines[0].product`.
        why: What is wrong there.
    """

    def __init__(self, why: str, path: str = "") -> None:
        self.why = why
        self.path = path
        super().__init__(f"{path.removeprefix('.')} {why}".strip())

    def within(self, step: str) -> Unmapped:
        """The same, seen from one level above."""
        return Unmapped(self.why, step + self.path)


@dataclass(frozen=True, slots=True)
class Plain:
    """JSON that is stored and read as it is. `kinds` are those of "object" and "array" that it can be."""

    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Items:
    """An array whose elements are alike, a list or a tuple in Python."""

    element: Shape
    make: type[list[Any]] | type[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tuple with one shape for each position."""

    elements: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Members:
    """An object whose names are data and whose values are alike."""

    element: Shape


@dataclass(frozen=True, slots=True)
class Record:
    """An object that is a dataclass in Python."""

    kind: type


@dataclass(frozen=True, slots=True)
class Either:
    """A union: which shape an object has, and which an array."""

    of_object: Shape
    of_array: Shape


Shape = Plain | Items | Fixed | Members | Record | Either
ANYTHING = Plain(frozenset({OBJECT, ARRAY}))
SCALAR = Plain()


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a dataclass.

    Attributes:
        field: Its name in Python.
        name: Its name in JSON.
        init: Whether the constructor takes it.
        required: Whether the constructor takes it and has no default for it.
        shape: Its value.
    """

    field: str
    name: str
    init: bool
    required: bool
    shape: Shape
