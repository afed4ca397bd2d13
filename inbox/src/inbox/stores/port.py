"""What every store does."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from inbox.errors import DeadLetter
from inbox.messages import Message
from inbox.sequences import Arrival


@dataclass(frozen=True, slots=True)
class Gap:
    """Events of an entity that were not handled, although later ones were: `first` to `last`, both included."""

    entity: str
    first: int
    last: int


class Store(Protocol):
    """Which messages were handled. One store belongs to one consumer: two would skip each other's messages."""

    def once(self, message: Message, *, entity: str | None = None) -> AbstractAsyncContextManager[Arrival]:
        """Enter a block that handles a message: `async with store.once(message) as arrival`.

        The message counts as handled if the block ends without an exception; if it raises, as never seen. One
        block runs at a time, so that of two deliveries of a message one sees that it is the second.

        Args:
            message: The message.
            entity: What its `sequence` counts in; by default its key. Writers number events within an entity:
                give its id if several entities share a key.

        Raises:
            DeadLetter: The message has no id: `no-message-id`.
        """

    async def gaps(self) -> list[Gap]:
        """Return what is missing, sorted by entity and number. An event that arrives late is removed."""

    async def forget(self, older_than: timedelta) -> int:
        """Forget ids that were handled longer ago, and return how many. Progress and gaps are kept.

        Keep ids for longer than an event may be repeated: the duplicate detection window, and how far back
        operators replay.
        """


def identity(message: Message) -> str:
    """Return the id of a message.

    Raises:
        DeadLetter: It has none.
    """
    if not message.id:
        raise DeadLetter("no-message-id", "Without a message id, a repetition cannot be recognised.")
    return message.id
