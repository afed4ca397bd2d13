"""Receives with session receivers, as a subscriber would: next available session, peek-lock, complete."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from local.demo.tally import Received, Tally

_SESSION_WAIT_S = 2.0
_MESSAGE_WAIT_S = 0.2

# Without a prefetch the SDK (7.15.0) releases, one by one, what arrives between two calls of receive_messages;
# the service hands it out again at once, and a session's messages can change places on their way.
_PREFETCH = 100


def subscriber_client(connection_string: str) -> ServiceBusClient:
    """A client for many short-lived session receivers on the local stack."""
    return ServiceBusClient.from_connection_string(
        connection_string,
        # The SDK would repeat each wait for a session three times before it says that there is none.
        retry_total=0,
        # It would read all certificates for every session accepted, though nothing here speaks TLS.
        ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )


async def receive_sessions(
    client: ServiceBusClient, topic: str, subscription: str, tally: Tally, *, receivers: int
) -> None:
    """Receive until cancelled, `receivers` sessions at a time."""

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
                    await _drain(receiver, tally)
            except OperationTimeoutError:
                continue  # no session had messages
            except ServiceBusError:
                # The session or its connection was lost; what was not settled comes again.
                await asyncio.sleep(0.1)

    workers = [asyncio.create_task(work()) for _ in range(receivers)]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks that use the SDK until they end: before Python 3.12 its waits can swallow a cancellation."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)


async def _drain(receiver: ServiceBusReceiver, tally: Tally) -> None:
    session = receiver.session.session_id
    while messages := await receiver.receive_messages(max_message_count=100, max_wait_time=_MESSAGE_WAIT_S):
        received_at = time.monotonic()
        for message in messages:
            await receiver.complete_message(message)
            tally.received(_received(message, session, received_at))


def _received(message: ServiceBusReceivedMessage, session: str, at: float) -> Received:
    properties = {
        _text(name): _text(value) if isinstance(value, bytes) else value
        for name, value in (message.application_properties or {}).items()
    }
    body = b"".join(message.body)
    return Received(
        identifier=message.message_id or "",
        session=session,
        subject=message.subject or "",
        body=body,
        properties=properties,
        at=at,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
