"""A pool of the SDK's senders: each has its own connection and carries one send at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPLinkError, AMQPSessionError, MessageException
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from relay.core.errors import PoisonError, RetryableError, SendError
from relay.routes.mapping import Long, Moment, Value
from relay.servicebus.link_suspects import GRACE_S, LateAcceptances, Suspects, is_the_cause, take_note
from relay.servicebus.messages import CONTENT_TYPE, Further, Message
from relay.servicebus.refusals import classify, is_made_up
from relay.servicebus.transfers import LinkLimits, Transfer

_CLOSE_TIMEOUT_S = 5.0
_ENDS = (AMQPLinkError, AMQPSessionError, AMQPConnectionError)

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide#message-annotations
_PARTITION_KEY = "x-opt-partition-key"
_SCHEDULED = "x-opt-scheduled-enqueue-time"
_NOTHING_FURTHER = Further()

logger = logging.getLogger(__name__)


class PooledSender:
    """A `transfers.Sender` with its own link, which is replaced by a fresh one after any failed send.

    After a failure the state of a link is unknown. The service may have detached it, and the SDK (7.15.0) reports
    that at a later send, as if it were the outcome of that one. The limits may have changed with the topic's tier.
    """

    def __init__(self, pool: SenderPool) -> None:
        self._pool = pool
        self._link: ServiceBusSender | None = None
        self._limits: LinkLimits | None = None

    @property
    def known_limits(self) -> LinkLimits | None:
        return self._limits

    async def limits(self, timeout_s: float) -> LinkLimits:
        await self._open(timeout_s)
        assert self._limits is not None
        return self._limits

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._open(timeout_s)
                message = await _for_sdk(transfer, link)
                may_send()
                await self._send(link, message, timeout_s, accepted_late)
        except TimeoutError as error:
            self.discard()
            raise self._pool.late.unanswered(timeout_s) from error
        except Exception as error:
            self.discard()
            raise self._pool.judged(transfer, error) from error
        self._pool.suspects.accepted += 1
        if self._pool.suspects:
            self._pool.suspects.clear(transfer)

    async def _send(
        self,
        link: ServiceBusSender,
        message: AmqpAnnotatedMessage | ServiceBusMessageBatch,
        timeout_s: float,
        accepted_late: Callable[[], None],
    ) -> None:
        sending = asyncio.create_task(link.send_messages(message, timeout=timeout_s + GRACE_S))
        sending.add_done_callback(take_note)
        began = time.monotonic()
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            # By the timeout, too. Its link is kept for a while, and used for nothing else.
            self._link = self._limits = None
            self._pool.await_late(link, sending, began, accepted_late)
            raise

    async def _open(self, timeout_s: float) -> ServiceBusSender:
        if self._link is None or self._limits is None:
            self._link = self._pool.new_link()
            try:
                async with asyncio.timeout(timeout_s):
                    batch = await _opened(self._link)
            except Exception as error:
                self.discard()
                raise classify(error) from error
            # The limit of a single message has no public name; on a topic that takes large messages it is above a
            # batch's.
            self._limits = LinkLimits(batch.max_size_in_bytes, self._link._max_message_size_on_link)
        return self._link

    def discard(self) -> None:
        """Give the link up; the next one is opened when it is needed."""
        if self._link is not None:
            self._pool.give_up(self._link)
        self._link = self._limits = None

    async def close(self) -> None:
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
        self._idle: list[PooledSender] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._unanswered: set[asyncio.Task[Any]] = set()
        self.late = LateAcceptances()
        self.suspects = Suspects()
        self.topic = topic
        self.size = size

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PooledSender]:
        """Acquire a sender, waiting until one is free.

        If the task raises or is cancelled, its sender's link is closed instead of used again: a transfer
        may still be under way on it.
        """
        async with self._free:
            # The one used last is the one whose connection is least likely to have gone idle.
            sender = self._idle.pop() if self._idle else PooledSender(self)
            try:
                yield sender
            except BaseException:
                sender.discard()
                raise
            finally:
                self._idle.append(sender)

    def new_link(self) -> ServiceBusSender:
        return self._client.get_topic_sender(self.topic)

    def give_up(self, link: ServiceBusSender) -> None:
        task = asyncio.create_task(_close(link))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def await_late(
        self,
        link: ServiceBusSender,
        sending: asyncio.Task[None],
        began: float,
        accepted_late: Callable[[], None],
    ) -> None:
        """Note in the background whether a transfer that was given up is accepted, and close its link."""
        grace_s = GRACE_S
        if not (sending.done() or _has_left(link)):
            # It must not leave later, behind its successor: not even while its link is closed.
            grace_s = 0.0
            if (socket := _socket(link)) is not None:
                socket.abort()

        waiting = asyncio.create_task(asyncio.wait({sending}, timeout=grace_s))

        def answered(_: asyncio.Task[Any]) -> None:
            self._unanswered.discard(waiting)
            if not sending.done():
                sending.cancel()
            elif not sending.cancelled() and sending.exception() is None:
                self.late.note(time.monotonic() - began)
                accepted_late()
            self.give_up(link)

        self._unanswered.add(waiting)
        # Also if it is cancelled before it has begun.
        waiting.add_done_callback(answered)

    def judged(self, transfer: Transfer, error: Exception) -> SendError:
        """Classify what a send has raised; a transfer that ends its links again and again is refused."""
        found = classify(error)
        if isinstance(found, PoisonError) or (isinstance(found, RetryableError) and found.refused):
            self.suspects.clear(transfer)
        elif _ended_link(error):
            # Nothing else was in flight on it.
            busy = isinstance(found, RetryableError) and found.busy
            ended = RetryableError(str(found), busy=busy, ended_alone=not busy)
            return is_the_cause(ended) if self.suspects.ended(transfer, 1, busy=busy) else ended
        return found

    async def close(self) -> None:
        """Close every sender that is not in use, and the client."""
        idle, self._idle = self._idle, []
        for task in self._unanswered:
            task.cancel()
        await asyncio.gather(*self._unanswered, return_exceptions=True)
        await asyncio.gather(*(sender.close() for sender in idle), *self._closing)
        await self._client.close()


async def _opened(link: ServiceBusSender) -> ServiceBusMessageBatch:
    """Open a link: asking for a batch does, and only the open link knows its limits."""
    opening = asyncio.create_task(link.create_message_batch())
    opening.add_done_callback(take_note)
    try:
        return await asyncio.shield(opening)
    finally:
        if not opening.done():
            # Once it is cancelled, the SDK forgets the socket of a connection that it has not opened whole.
            socket = _socket(link)
            opening.cancel()
            if socket is not None:
                socket.abort()


async def _close(link: ServiceBusSender) -> None:
    socket = _socket(link)
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await link.close()
    except Exception as error:  # noqa: BLE001
        # The link is discarded either way; unsent transfers are sent again on another.
        logger.debug("closing a sender: %s", str(error))
    finally:
        # The SDK leaves the socket of a connection open that it has not opened whole, or cannot close.
        if socket is not None:
            socket.abort()


def _socket(link: ServiceBusSender) -> asyncio.WriteTransport | None:
    """Return the SDK's (7.15.0) transport of bytes, or None if there is none, or another SDK has it elsewhere."""
    found: Any = link
    for name in ("_handler", "_connection", "_transport", "writer", "transport"):
        found = getattr(found, name, None)
    return found  # type: ignore[no-any-return]


def _has_left(link: ServiceBusSender) -> bool:
    """Return True if all of a transfer is known to have left this process."""
    socket = _socket(link)
    try:
        handler: Any = link._handler
        pending = handler._link._pending_deliveries
        return socket is not None and not socket.get_write_buffer_size() and all(each.sent for each in pending)
    except AttributeError:
        return False


def _ended_link(error: Exception) -> bool:
    """Return True if the link or the connection ended while a transfer was in flight."""
    if isinstance(error, ServiceBusConnectionError | ServiceBusCommunicationError):
        return True
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    # The SDK makes up an outcome if the link has ended without an error.
    return (isinstance(inner, MessageException) and is_made_up(inner)) or isinstance(inner, _ENDS)


async def _for_sdk(transfer: Transfer, link: ServiceBusSender) -> AmqpAnnotatedMessage | ServiceBusMessageBatch:
    """Return the messages for the SDK, which takes no encoded ones.

    The link makes the batch: the SDK (7.15.0) encodes one from anywhere else again, message by message, when it is
    sent.
    """
    if not transfer.is_batch:
        return annotated(next(transfer.messages()))
    batch = await link.create_message_batch()
    try:
        for message in transfer.messages():
            batch.add_message(annotated(message))
    except MessageSizeExceededError as error:
        # The link is another one than the batch was made for, and takes less.
        raise PoisonError(str(error), condition="", too_large=True) from error
    return batch


def annotated(message: Message) -> AmqpAnnotatedMessage:
    """Return the SDK's message."""
    further = message.further or _NOTHING_FURTHER
    properties = {"correlation_id": further.correlation_id, "reply_to": further.reply_to}
    annotations: dict[str, Any] = {_PARTITION_KEY: message.partition_key}
    if further.scheduled_ms is not None:
        annotations[_SCHEDULED] = {"TYPE": "TIMESTAMP", "VALUE": further.scheduled_ms}
    # A ServiceBusMessage is made of this, and its constructor takes a quarter of what a batched event costs
    # (docs/decisions/0004-messages-as-amqp.md).
    return AmqpAnnotatedMessage(
        data_body=message.body,
        properties={
            "message_id": message.id,
            "group_id": message.partition_key,
            "subject": message.subject,
            "content_type": CONTENT_TYPE,
            **{name: value for name, value in properties.items() if value is not None},
        },
        annotations=annotations,
        header=None if further.time_to_live_ms is None else {"time_to_live": further.time_to_live_ms},
        application_properties={name: _typed(value) for name, value in message.application_properties.items()},
    )


def _typed(value: Value) -> object:
    """Return `value` with its AMQP type for the SDK's encoder.

    Left to itself, the SDK (7.15.0) encodes every int in 32 bits, and raises ValueError beyond.
    """
    if isinstance(value, Moment):
        return {"TYPE": "TIMESTAMP", "VALUE": int(value)}
    return {"TYPE": "LONG", "VALUE": int(value)} if isinstance(value, Long) else value
