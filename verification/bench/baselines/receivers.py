"""Receivers that a service would write with the SDK alone, instead of with `inbox`.

`ByHand` keeps the same promises: many sessions at a time, each in order, locks renewed, each message settled after
its effect. `InTurn` is the loop of the SDK's examples: a session, its messages, the next session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from outbox_relay.inbox.event_loop import end_tasks

_ACCEPT_S = 5.0
_IDLE_S = 0.2
_RETRY_S, _RETRY_MAX_S = 1.0, 60.0
_MESSAGES = 50

Handle = Callable[[ServiceBusReceivedMessage], Awaitable[None]]

_log = logging.getLogger(__name__)


class ByHand:
    """Receives `sessions` sessions at a time, each in a task of its own, until it is stopped.

    The traps of the SDK that `docs/receiving-events.md` lists are avoided where that takes a line: it prefetches,
    leaves a session after a failure, and does not wait for the close of one before it accepts the next.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        topic: str,
        subscription: str,
        handle: Handle,
        *,
        sessions: int,
        prefetch: int,
    ) -> None:
        self._client = client
        self._names = topic, subscription
        self._handle = handle
        self._sessions = sessions
        self._prefetch = prefetch
        self._stopping = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        working = [asyncio.create_task(self._work()) for _ in range(self._sessions)]
        await self._stopping.wait()
        await end_tasks(working)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stopping.set()

    async def _work(self) -> None:
        while True:
            receiver = self._client.get_subscription_receiver(
                *self._names,
                session_id=NEXT_AVAILABLE_SESSION,
                max_wait_time=_ACCEPT_S,
                prefetch_count=self._prefetch,
            )
            try:
                await receiver.__aenter__()
                await self._keep_locked(receiver)
            except OperationTimeoutError:
                continue
            except ServiceBusError as error:
                _log.warning("A session was lost: %s", type(error).__name__)
            finally:
                closing = asyncio.create_task(receiver.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _keep_locked(self, receiver: ServiceBusReceiver) -> None:
        """Handle the session's messages for as long as its lock can be renewed."""
        handling = asyncio.create_task(self._receive(receiver))
        renewing = asyncio.create_task(_renew(receiver))
        try:
            await asyncio.wait({handling, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks([handling, renewing])
        for task in (handling, renewing):
            if not task.cancelled():
                task.result()

    async def _receive(self, receiver: ServiceBusReceiver) -> None:
        while messages := await receiver.receive_messages(max_message_count=_MESSAGES, max_wait_time=_IDLE_S):
            for message in messages:
                try:
                    await self._handle(message)
                except Exception as error:  # noqa: BLE001 - a handler may raise anything
                    _log.warning("A handler failed: %s", type(error).__name__)
                    await asyncio.sleep(min(_RETRY_MAX_S, _RETRY_S * 2.0 ** (message.delivery_count or 0)))
                    await receiver.abandon_message(message)
                    return
                await receiver.complete_message(message)


async def _renew(receiver: ServiceBusReceiver) -> None:
    """Renew the lock each time when half of it is over; raises when it is lost."""
    while True:
        until = receiver.session.locked_until_utc
        assert until is not None
        await asyncio.sleep(max(0.05, (until - datetime.now(UTC)).total_seconds() / 2))
        await receiver.session.renew_lock()


class InTurn:
    """One session after another, without any guarantee, until it is stopped."""

    def __init__(self, client: ServiceBusClient, topic: str, subscription: str, handle: Handle) -> None:
        self._client = client
        self._names = topic, subscription
        self._handle = handle
        self._stopped = False

    def stop(self) -> None:
        """Make `run` return after the current session."""
        self._stopped = True

    async def run(self) -> None:
        while not self._stopped:
            receiver = self._client.get_subscription_receiver(
                *self._names, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=_ACCEPT_S
            )
            try:
                async with receiver:
                    await self._receive(receiver)
            except OperationTimeoutError:
                continue

    async def _receive(self, receiver: ServiceBusReceiver) -> None:
        while messages := await receiver.receive_messages(max_message_count=_MESSAGES, max_wait_time=_IDLE_S):
            for message in messages:
                await self._handle(message)
                await receiver.complete_message(message)
