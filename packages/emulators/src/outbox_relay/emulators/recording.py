"""A file to which an emulator appends what it did, one JSON object a line, for whoever checks a run afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson


class Recording:
    """Appends lines; each is in the file when the operation that it is about is answered."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open the file. `clock` gives seconds since 1970. Raises OSError."""
        self._file = path.open("ab", buffering=0)
        self._clock = clock

    def add(self, **values: Any) -> None:
        """Append a line: `at`, the time, and the values. What is no JSON value is written as text."""
        self._file.write(orjson.dumps({"at": self._clock(), **values}, default=str) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def raw(text: str) -> orjson.Fragment:
    """Return a value that is JSON text already, in one line."""
    return orjson.Fragment(text.replace("\r", " ").replace("\n", " "))
