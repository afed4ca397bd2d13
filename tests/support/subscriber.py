"""A subscriber for the tests: receives what a subscription holds, and keeps it in the order of receipt."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from outbox_relay.inbox import connect
from outbox_relay.inbox.connection import Connections
from outbox_relay.inbox.event_loop import end_tasks, within
from tests.support.watchdog import WATCHDOG_S


@dataclass(slots=True)
class Subscriber:
    """Settled messages by session. Without a `subscription`, `topic` is a queue."""

    connection_string: str
    topic: str = "domain-events"
    subscription: str | None = "all"
    messages: dict[str, list[ServiceBusReceivedMessage]] = field(default_factory=lambda: defaultdict(list))
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _accepting: set[asyncio.Task[None]] = field(default_factory=set)
    _enough: bool = False

    @property
    def count(self) -> int:
        """Messages received so far, repetitions included."""
        return sum(len(messages) for messages in self.messages.values())

    def ids(self) -> dict[str, list[str]]:
        """Message ids by session, in the order of receipt."""
        return {
            session: [message.message_id or "" for message in messages]
            for session, messages in self.messages.items()
        }

    async def receive(self, count: int, *, receivers: int = 8) -> None:
        """Receive until at least `count` messages have come; AssertionError when they have not in time."""
        async with connect(self.connection_string) as client:
            self._enough = False
            workers = [
                asyncio.create_task(self._receive_sessions(client, wait_s=WATCHDOG_S)) for _ in range(receivers)
            ]
            deadline = time.monotonic() + WATCHDOG_S
            while self.count < count and time.monotonic() < deadline:
                self._arrived.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), deadline - time.monotonic())
            self._enough = True
            # One that receives is left to finish: cancelled, it would not close its link.
            await end_tasks(self._accepting)
            await asyncio.gather(*workers, return_exceptions=True)
        assert self.count >= count, f"{self.count} of {count} messages came within {WATCHDOG_S} s"

    async def receive_rest(self, *, wait_s: float = 1.0) -> None:
        """Receive whatever there is, until no session has a message for `wait_s` seconds."""
        async with connect(self.connection_string) as client:
            while await self._receive_session(client, wait_s=wait_s):
                pass

    async def _receive_sessions(self, client: ServiceBusClient, *, wait_s: float) -> None:
        while not self._enough and await self._receive_session(client, wait_s=wait_s):
            pass

    async def _receive_session(self, client: ServiceBusClient, *, wait_s: float) -> bool:
        options: dict[str, Any] = {
            "session_id": NEXT_AVAILABLE_SESSION,
            "max_wait_time": wait_s,
            "prefetch_count": 100,  # without it the SDK releases what comes between two calls, out of order
        }
        receiver = (
            client.get_queue_receiver(self.topic, **options)
            if self.subscription is None
            else client.get_subscription_receiver(self.topic, self.subscription, **options)
        )
        # Not `async with receiver`: cancelled while it waits for a session, that would leave its link open, and
        # the broker would give the next session to a receiver that nobody reads.
        worker = asyncio.current_task()
        assert worker is not None
        connections = Connections(receiver)
        try:
            self._accepting.add(worker)
            try:
                await within(WATCHDOG_S, receiver.__aenter__(), "the next session", connections=connections)
            finally:
                self._accepting.discard(worker)
            session = receiver.session.session_id
            while batch := await receiver.receive_messages(max_message_count=100, max_wait_time=0.2):
                for message in batch:
                    await receiver.complete_message(message)
                    self.messages[session].append(message)
                    self._arrived.set()
        except OperationTimeoutError:
            return False
        except SessionLockLostError:
            # A completion came too late. What is not among `messages` comes again, in its order.
            return True
        finally:
            await receiver.close()
            # Cancelled while it opens a connection, the SDK (7.15.0) drops it as it is.
            connections.discard()
        return True


async def received(connection_string: str, count: int, **options: Any) -> Subscriber:
    """A subscriber that has received this many messages; `options` as for `Subscriber.receive`."""
    subscriber = Subscriber(connection_string)
    await subscriber.receive(count, **options)
    return subscriber


def properties(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """The application properties with text as text, which the SDK gives as bytes."""
    return {
        _text(name): _text(value) if isinstance(value, bytes) else value
        for name, value in (message.application_properties or {}).items()
    }


def body(message: ServiceBusReceivedMessage) -> bytes:
    """The body's bytes."""
    return b"".join(message.body)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
