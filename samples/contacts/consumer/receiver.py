"""Receives a subscription with sessions: many at a time, each in its order, each message settled by what became
of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from samples.contacts.consumer.changes import UnreadableEvent

_SESSION_WAIT_S = 2.0
_MESSAGE_WAIT_S = 0.2
_PAUSE_S = 0.1
# Few enough to be handled long before the session's lock expires, a minute on the subscriptions used here.
_AT_ONCE = 100

# Without a prefetch the SDK (7.15.0) releases, one by one, what arrives between two calls of receive_messages;
# the service hands it out again at once, and a session's messages can change places on their way.
_PREFETCH = 100

_log = logging.getLogger(__name__)

Handle = Callable[[ServiceBusReceivedMessage], object]


async def receive_sessions(
    client: ServiceBusClient, topic: str, subscription: str, handle: Handle, *, sessions: int
) -> None:
    """Receive until cancelled, or until something fails that waiting does not mend.

    Args:
        client: Made with `retry_total=0`, or each wait for a session is made four times.
        topic, subscription: What to receive; the subscription requires sessions.
        handle: Called with each message, which is completed when it returns. UnreadableEvent dead-letters the
            message; anything else it raises abandons it, and it comes again before its successors.
        sessions: How many to receive at a time.
    """

    async def work() -> None:
        while True:
            receiver = client.get_subscription_receiver(
                topic,
                subscription,
                session_id=NEXT_AVAILABLE_SESSION,
                max_wait_time=_SESSION_WAIT_S,
                prefetch_count=_PREFETCH,
            )
            try:
                async with receiver:
                    await _drain(receiver, handle)
            except OperationTimeoutError:
                continue  # no session had messages
            except ServiceBusError as error:
                # The session or its connection was lost; what was not settled comes again.
                _log.info("A session was lost: %s", error)
                await asyncio.sleep(_PAUSE_S)

    workers = [asyncio.create_task(work()) for _ in range(sessions)]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)


async def _drain(receiver: ServiceBusReceiver, handle: Handle) -> None:
    """Handle what the session has, then leave it to others: there are more sessions than receivers."""
    while messages := await receiver.receive_messages(max_message_count=_AT_ONCE, max_wait_time=_MESSAGE_WAIT_S):
        for message in messages:
            if not await _settle(receiver, message, handle):
                return


async def _settle(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, handle: Handle) -> bool:
    """Handle and settle a message; False where the session has to be left."""
    try:
        handle(message)
    except UnreadableEvent as error:
        _log.error("Message %s is dead-lettered: %s", message.message_id, error)
        await receiver.dead_letter_message(message, reason="unreadable", error_description=str(error))
    except Exception:  # noqa: BLE001 - whatever a handler raises is its message's affair, not the receiver's
        _log.exception("Message %s is abandoned, delivery %s", message.message_id, message.delivery_count)
        await receiver.abandon_message(message)
        # What was received with it must not overtake it.
        return False
    else:
        await receiver.complete_message(message)
    return True


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks that use the SDK until they end: before Python 3.12 its waits can swallow a cancellation."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)
