"""Stores the contents of large events, and makes the messages that name them. It knows no SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from relay.core.deadline import SLOWEST_BYTES_S
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
        # Number of contents that were stored, and that the store did not answer in time.
        self._stored = self._unanswered = 0

    async def claim(self, event: Event, timeout_s: float, attempt_s: float) -> Message:
        """Return the message that takes the place of a large event's, whose content is stored when this returns.

        Args:
            timeout_s: Seconds for the store to answer, besides those that the bytes take at `SLOWEST_BYTES_S`.
            attempt_s: Seconds until the attempt ends. They bound the wait for a place as well.

        Raises:
            ContentError: It was not stored in time. Nothing was sent: the event comes again.
        """
        message = self._message_of(event)
        content = Content.of(message)
        try:
            async with asyncio.timeout(attempt_s), self._place():
                address = await self._put(content, timeout_s + len(content.body) // SLOWEST_BYTES_S)
        except (ContentError, TimeoutError) as error:
            said = str(error) or "The attempt was over before: the next one tries again."
            raise ContentError(
                f"The content of the event {event.id!r} ({len(content.body)} bytes) was not stored. {said}"
            ) from error
        return content.claim(message, address)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Wait for one of the places, for as long as the store answers others.

        Raises:
            ContentError: Meanwhile the store has left others without an answer, and has stored none. Those that
                wait would all wait in vain, one behind the other.
        """
        stored, unanswered = self._stored, self._unanswered
        async with self._free:
            if self._unanswered > unanswered and self._stored == stored:
                raise ContentError(
                    "Blob Storage did not answer those that were tried before: check BLOBS and the network."
                )
            yield

    async def _put(self, content: Content, limit_s: float) -> str:
        try:
            async with asyncio.timeout(limit_s):
                address = await self._store.put(content)
        except TimeoutError as error:
            self._unanswered += 1
            raise ContentError(
                f"Blob Storage did not answer within {limit_s:.3g} s: check BLOBS and the network."
            ) from error
        self._stored += 1
        return address

    async def close(self) -> None:
        await self._store.close()
