"""The port through which events are committed to an outbox."""

from __future__ import annotations

from typing import Protocol

from local.sending.event import Event


class NotCommittedError(Exception):
    """The outbox refused the event, or could not be reached; the message says why."""


class Writer(Protocol):
    """Commits events as a service would."""

    async def commit(self, event: Event, /) -> int:
        """Commit it in its own transaction; returns its number within its partition key.

        Raises:
            NotCommittedError: Its id is in use, or the outbox refused it.
            InvalidDocument: It must not be written at all.
        """
