"""A pool of AMQP senders: each is a connection of its own and carries one send at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

_CLOSE_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PooledSender:
    """A sender, and the largest batch in bytes that its link takes; None until the link was opened."""

    sender: ServiceBusSender
    batch_limit: int | None = None


class SenderPool:
    """At most `size` senders to one topic, opened when first needed and kept open between invocations.

    A ServiceBusSender has its own connection, one send in flight at a time, and must not be shared by
    concurrent tasks: so a task borrows one, and concurrency is the number of senders.
    """

    def __init__(self, client: ServiceBusClient, topic: str, size: int) -> None:
        self._client = client
        self._free = asyncio.Semaphore(size)
        self._idle: list[PooledSender] = []
        self._closing: set[asyncio.Task[None]] = set()
        self.topic = topic
        self.size = size

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[PooledSender]:
        """Lend a sender; waits while all are lent.

        A sender whose borrower raised, or was cancelled, is closed instead of lent again: a transfer may still
        be under way on its connection.
        """
        async with self._free:
            # The one used last is the one whose connection is least likely to have gone idle.
            pooled = self._idle.pop() if self._idle else PooledSender(self._client.get_topic_sender(self.topic))
            try:
                yield pooled
            except BaseException:
                self._discard(pooled)
                raise
            self._idle.append(pooled)

    def _discard(self, pooled: PooledSender) -> None:
        task = asyncio.create_task(_close(pooled.sender))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every sender that is not lent, and the client."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_close(pooled.sender) for pooled in idle), *self._closing)
        await self._client.close()


async def _close(sender: ServiceBusSender) -> None:
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await sender.close()
    except (AzureError, OSError, TimeoutError) as error:
        # The sender is given up either way; what it had not sent is sent again by another.
        logger.debug("closing a sender: %s", error)
