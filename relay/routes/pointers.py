"""JSON Pointer (RFC 6901): where in a document a value is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_ESCAPED = re.compile(r"(?:[^~]|~[01])*")


class _Missing:
    """The value of a pointer that leads nowhere; null is a value."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in a document.

    Attributes:
        text: As it is written: `/data/createdAt`; `/` and `~` in a name are written `~1` and `~0`.
        names: The names along the way, unescaped; none for the whole document.
    """

    text: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pointer:
        """Parse a JSON pointer. Raises ValueError, with the remedy, if the text is no pointer."""
        if text and not text.startswith("/"):
            raise ValueError(f"is {text!r}: write a JSON Pointer, such as /data/createdAt")
        names = text.split("/")[1:]
        if not all(_ESCAPED.fullmatch(name) for name in names):
            raise ValueError(f"is {text!r}: in a JSON Pointer, write ~ as ~0 and / within a name as ~1")
        return cls(text, tuple(name.replace("~1", "/").replace("~0", "~") for name in names))

    def find(self, document: Mapping[str, Any]) -> Any:
        """Return the value there, or MISSING. A name of digits is an element of an array."""
        value: Any = document
        for name in self.names:
            if isinstance(value, dict) or (not isinstance(value, list) and hasattr(value, "get")):
                value = value.get(name, MISSING)
            elif isinstance(value, list) and _is_index(name) and int(name) < len(value):
                value = value[int(name)]
            else:
                return MISSING
            if value is MISSING:
                return MISSING
        return value

    def find_in(self, views: Iterable[Mapping[str, Any]]) -> Any:
        """Return the value there in the first of several views of a document that has one, or MISSING."""
        for view in views:
            value = self.find(view)
            if value is not MISSING:
                return value
        return MISSING

    def __str__(self) -> str:
        return self.text


# No array of an outbox has more elements than this has digits.
_MAX_DIGITS = 9


def _is_index(name: str) -> bool:
    """Return True if a name is an index by RFC 6901: digits without leading zeros."""
    return (
        name.isascii()
        and name.isdecimal()
        and len(name) <= _MAX_DIGITS
        and (name == "0" or not name.startswith("0"))
    )
