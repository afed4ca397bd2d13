"""The reports that a receiver makes on its messages: none here; with opentelemetry-api, those of `instruments`."""

from __future__ import annotations

from contextvars import ContextVar

from outbox_relay.inbox.handling import Handler

_missing: ContextVar[list[int] | None] = ContextVar("inbox_missing", default=None)


class Telemetry:
    """Reports nothing, and costs nothing. `instruments.Instruments` reports."""

    def observed(self, handler: Handler) -> Handler:
        """Return a handler that reports each call: its span, its lag, and its outcome."""
        return handler

    def held(self, sessions: int) -> None:
        """Add to the number of sessions held; `sessions` may be negative."""

    def parked(self, reason: str) -> None:
        """Report that a key is parked because of a message that cannot be handled."""

    def dead_lettered(self, reason: str) -> None:
        """Report that a message is dead-lettered by its handler, or because no handler can read it."""


def note_missing(numbers: range) -> None:
    """Note that the message being handled shows these numbers to be missing; counted if its handler returns.

    A store that repeats its transaction notes them again: only the last time counts.
    """
    noted = _missing.get()
    if noted is not None:
        noted[:] = [len(numbers)]


def noting_missing() -> list[int]:
    """Put what the current task notes from now on into the list that is returned."""
    noted: list[int] = []
    _missing.set(noted)
    return noted
