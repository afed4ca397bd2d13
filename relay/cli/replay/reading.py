"""What a replay needs of an outbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from relay.cli.replay.state import Invalid
from relay.events import Document, Event, Rejected


class Reading(Protocol):
    """The events of a replay's range.

    Attributes:
        unread: How many were counted and still exist, but were not among the pages read so far.
        gone: Events of the range whose row no longer exists, found in the pages read so far.
    """

    unread: int
    gone: list[Invalid]

    async def count(self) -> int | None:
        """How many there are; None where nobody can tell beforehand. Asked once, before `pages`."""

    def pages(self) -> AsyncGenerator[list[Document], None]:
        """The documents, in commit order within each partition key."""

    async def passed(self, document: Document, /) -> bool:
        """Whether the relay has passed a document, as far as its checkpoints show."""

    def event_of(self, document: Document, /) -> Event | Rejected:
        """The event of a document, or why it cannot be published."""
