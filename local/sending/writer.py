"""The port through which events are committed to an outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from local.sending.event import Event
from relay.core.documents import SourceDocument


class NotCommittedError(Exception):
    """The outbox refused the event, or could not be reached; the message says why."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An event that was committed.

    Attributes:
        document: As the relay reads it.
        number: Its number within its partition key; None where its outbox has no such numbers.
    """

    document: SourceDocument
    number: int | None = None


class Writer(Protocol):
    """Commits events as a service would."""

    async def commit(self, event: Event, /) -> Commit:
        """Commit it in its own transaction.

        Raises:
            NotCommittedError: Its id is in use or could not be read, or the outbox refused it.
            InvalidDocument: It must not be written at all.
            Unplaceable: The outbox has one place for two of its fields.
        """
