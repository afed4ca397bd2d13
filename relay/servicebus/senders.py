"""A pool of AMQP senders: each is a connection of its own and carries one send at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from relay.servicebus.refusals import classify

_CLOSE_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)

Transfer = AmqpAnnotatedMessage | ServiceBusMessageBatch


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What the link takes, in bytes: `message` for a transfer of one message, `batch` for one of a batch."""

    batch: int
    message: int


class Sender:
    """One link to the topic, which is replaced by a fresh one after any failed send.

    After a failure the state of a link is unknown. The service may have detached it, and the SDK (7.15.0) reports
    that at a later send, as if it were the outcome of that one. The limits may have changed with the topic's tier.
    """

    def __init__(self, pool: SenderPool) -> None:
        self._pool = pool
        self._link: ServiceBusSender | None = None
        self._limits: LinkLimits | None = None

    async def limits(self, timeout_s: float) -> LinkLimits:
        """The limits of the link, which is opened where it is not open.

        Raises:
            RetryableError, ConfigurationError: The link could not be opened within `timeout_s` seconds.
        """
        if self._limits is None:
            self._link = self._pool.new_link()
            try:
                async with asyncio.timeout(timeout_s):
                    # Asking for a batch opens the link, and only the open link knows its limits.
                    batch = await self._link.create_message_batch()
            except Exception as error:
                self.discard()
                raise classify(error) from error
            # The limit of a single message has no public name; on a topic that takes large messages it is above a
            # batch's.
            self._limits = LinkLimits(batch.max_size_in_bytes, self._link._max_message_size_on_link)
        return self._limits

    async def batch(self, timeout_s: float, *, reserved: int) -> ServiceBusMessageBatch:
        """An empty batch with the room of the link's limit less `reserved` bytes.

        The link makes it: the SDK (7.15.0) encodes one from anywhere else again, message by message, when it is
        sent.

        Raises:
            RetryableError, ConfigurationError: The link could not be opened within `timeout_s` seconds.
        """
        limits = await self.limits(timeout_s)
        return await self._open_link().create_message_batch(limits.batch - reserved)

    async def send(self, transfer: Transfer, timeout_s: float) -> None:
        """Send once, on a link that `limits` has opened. Returns when the service has accepted the transfer.

        Raises:
            SendError: The transfer was refused, or it is not known what became of it. The link is discarded.
        """
        link = self._open_link()
        try:
            async with asyncio.timeout(timeout_s):
                await link.send_messages(transfer, timeout=timeout_s)
        except Exception as error:
            self.discard()
            raise classify(error) from error

    def _open_link(self) -> ServiceBusSender:
        if self._link is None:
            raise RuntimeError("a link is opened, by limits(), before it is sent on")
        return self._link

    def discard(self) -> None:
        """Give the link up; the next one is opened when it is needed."""
        if self._link is not None:
            self._pool.give_up(self._link)
        self._link = self._limits = None

    async def close(self) -> None:
        """Close the link, if there is one."""
        link, self._link, self._limits = self._link, None, None
        if link is not None:
            await _close(link)


class SenderPool:
    """At most `size` senders to one topic, opened when first needed and kept open between invocations.

    A ServiceBusSender has its own connection, one send in flight at a time, and must not be shared by
    concurrent tasks. So each task acquires one, and concurrency is the number of senders.
    """

    def __init__(self, client: ServiceBusClient, topic: str, size: int) -> None:
        if size < 1:
            raise ValueError(f"size is {size}: a pool needs at least one sender")
        self._client = client
        self._free = asyncio.Semaphore(size)
        self._idle: list[Sender] = []
        self._closing: set[asyncio.Task[None]] = set()
        self.topic = topic
        self.size = size

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Sender]:
        """Acquire a sender, waiting until one is free.

        If the task raises or is cancelled, its sender's link is closed instead of used again: a transfer
        may still be under way on it.
        """
        async with self._free:
            # The one used last is the one whose connection is least likely to have gone idle.
            sender = self._idle.pop() if self._idle else Sender(self)
            try:
                yield sender
            except BaseException:
                sender.discard()
                raise
            finally:
                self._idle.append(sender)

    def new_link(self) -> ServiceBusSender:
        """A link that is not open yet."""
        return self._client.get_topic_sender(self.topic)

    def give_up(self, link: ServiceBusSender) -> None:
        """Close a link in the background."""
        task = asyncio.create_task(_close(link))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every sender that is not in use, and the client."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(sender.close() for sender in idle), *self._closing)
        await self._client.close()


async def _close(link: ServiceBusSender) -> None:
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await link.close()
    except (AzureError, OSError) as error:
        # The link is discarded either way; what it had not sent is sent again on another.
        logger.debug("closing a sender: %s", error)
