"""Notes that the message that is being handled closes a gap, which is logged once its handler returns."""

from __future__ import annotations

from contextvars import ContextVar

_closed: ContextVar[list[int] | None] = ContextVar("inbox_closed", default=None)


def note_closed(sequence: int) -> None:
    """Note that a number was missing until now. A store that repeats its transaction notes it again."""
    noted = _closed.get()
    if noted is not None:
        noted[:] = [sequence]


def noting_closed() -> list[int]:
    """Put what the current task notes from now on into the list that is returned."""
    noted: list[int] = []
    _closed.set(noted)
    return noted
