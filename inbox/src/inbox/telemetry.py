"""What a receiver reports of its messages: nothing here, and with opentelemetry-api what `instruments` does."""

from __future__ import annotations

from contextvars import ContextVar

from inbox.handling import Handler

_missing: ContextVar[list[int] | None] = ContextVar("inbox_missing", default=None)


class Telemetry:
    """Reports nothing, and costs nothing. `instruments.Instruments` reports."""

    def observed(self, handler: Handler) -> Handler:
        """The handler, each call of which is reported: its span, its lag, and how it ended."""
        return handler

    def held(self, sessions: int) -> None:
        """Add to the number of sessions held; `sessions` may be negative."""

    def parked(self, reason: str) -> None:
        """A key is parked because of a message that cannot be handled."""

    def dead_lettered(self, reason: str) -> None:
        """A message is dead-lettered by its handler, or because no handler can read it."""


def note_missing(numbers: range) -> None:
    """The message that is being handled shows these to be missing; counted if its handler returns.

    A store that repeats its transaction notes them again: only the last time counts.
    """
    noted = _missing.get()
    if noted is not None:
        noted[:] = [len(numbers)]


def noting_missing() -> list[int]:
    """Have what the current task notes from now on put into the list that is returned."""
    noted: list[int] = []
    _missing.set(noted)
    return noted
