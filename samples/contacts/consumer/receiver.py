"""Receives from a subscription with sessions: several sessions concurrently, each in order."""

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
_RECONNECT_DELAY_S = 0.1
# Few enough to handle before the session lock expires, after one minute on the subscriptions used here.
_BATCH_SIZE = 100

# Without a prefetch the SDK (7.15.0) releases messages that arrive between two calls of receive_messages. The
# service delivers them again at once, possibly out of order.
_PREFETCH = 100

_log = logging.getLogger(__name__)

Handle = Callable[[ServiceBusReceivedMessage], object]


async def receive_sessions(
    client: ServiceBusClient, topic: str, subscription: str, handle: Handle, *, sessions: int
) -> None:
    """Receive until cancelled, or until an error that a retry does not fix.

    Args:
        client: Created with `retry_total=0`; otherwise the SDK repeats each wait for a session three times.
        topic, subscription: What to receive. The subscription requires sessions.
        handle: Called with each message. When it returns, the message is completed. UnreadableEvent dead-letters
            the message. Any other exception abandons it, and it is delivered again before its successors.
        sessions: How many sessions to receive concurrently.
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
                continue  # no session has messages
            except ServiceBusError as error:
                # The session or its connection was lost. Unsettled messages are delivered again.
                _log.info("Lost a session: %s", error)
                await asyncio.sleep(_RECONNECT_DELAY_S)

    workers = [asyncio.create_task(work()) for _ in range(sessions)]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)


async def _drain(receiver: ServiceBusReceiver, handle: Handle) -> None:
    """Handle the messages of a session, then release it: there are more sessions than receivers."""
    while messages := await receiver.receive_messages(
        max_message_count=_BATCH_SIZE, max_wait_time=_MESSAGE_WAIT_S
    ):
        for message in messages:
            if not await _settle(receiver, message, handle):
                return


async def _settle(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, handle: Handle) -> bool:
    """Handle and settle a message. Return False if the session must be released."""
    try:
        handle(message)
    except UnreadableEvent as error:
        _log.error("Dead-lettering message %s: %s", message.message_id, error)
        await receiver.dead_letter_message(message, reason="unreadable", error_description=str(error))
    except Exception:  # noqa: BLE001 - a handler may raise anything; it must not stop the receiver
        _log.exception("Abandoning message %s, delivery %s", message.message_id, message.delivery_count)
        await receiver.abandon_message(message)
        # Messages received with it must not be handled before it.
        return False
    else:
        await receiver.complete_message(message)
    return True


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks that use the SDK, repeatedly: before Python 3.12 its waits can swallow a cancellation."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)
