"""Stores the contents of large events, and makes the messages that name them. It knows no SDK."""

from __future__ import annotations

import asyncio
from typing import Protocol

from relay.core.errors import ContentError
from relay.core.events import Event
from relay.large.content import Content
from relay.servicebus.messages import Contract, Message

# Maximum number of contents that are written at a time, of up to 2 MB each in Cosmos DB.
_AT_A_TIME = 16


class ContentStore(Protocol):
    """Where contents are stored. `tests/contracts/test_contents.py` is what each store passes."""

    async def put(self, content: Content, /) -> str:
        """Store a content, or store it again; it is there when this returns.

        Returns:
            Its address: a URL without any secret.

        Raises:
            ContentError: It was not stored, or it is not known whether it was. The message has the remedy.
        """

    async def close(self) -> None:
        """Close every connection."""


class Claims:
    """Stores the contents of one publisher's large events."""

    def __init__(self, store: ContentStore, message_of: Contract) -> None:
        self._store = store
        self._message_of = message_of
        self._free = asyncio.Semaphore(_AT_A_TIME)

    async def claim(self, event: Event, timeout_s: float) -> Message:
        """Return the message that takes the place of a large event's, whose content is stored when this returns.

        Raises:
            ContentError: It was not stored within `timeout_s` seconds. Nothing was sent: the event comes again.
        """
        message = self._message_of(event)
        content = Content.of(message)
        try:
            async with asyncio.timeout(timeout_s), self._free:
                address = await self._store.put(content)
        except (ContentError, TimeoutError) as error:
            said = (
                str(error) or f"Blob Storage did not answer within {timeout_s:.3g} s: check BLOBS and the network."
            )
            raise ContentError(
                f"The content of the event {event.id!r} ({len(content.body)} bytes) was not stored. {said}"
            ) from error
        return content.claim(message, address)

    async def close(self) -> None:
        await self._store.close()
