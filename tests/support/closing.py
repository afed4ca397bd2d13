"""A fixture that closes what a test or another fixture opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol, TypeVar

import pytest


class Closable(Protocol):
    """An object that holds something open, such as a connection to SQLite."""

    def close(self) -> object:
        """Close it."""


OpenedT = TypeVar("OpenedT", bound=Closable)


class CloseLater(Protocol):
    """Closes objects after the test, the last one first."""

    def __call__(self, opened: OpenedT, /) -> OpenedT:
        """Return the object, which is closed after the test."""


@pytest.fixture
def close_later() -> Iterator[CloseLater]:
    """Return a function for objects that are to be closed after the test, on the test's thread."""
    with ExitStack() as stack:

        def close_later(opened: OpenedT, /) -> OpenedT:
            stack.callback(opened.close)
            return opened

        yield close_later
