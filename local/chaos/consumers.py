"""Subscribers that crash, abandon messages, settle late or out of order, and lose locks.

They nevertheless process every message, in the order of its session.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from local.chaos.contents import Contents
from local.chaos.edge_cases import CONSUMER_SETTLED_LATE, CONSUMER_SETTLED_REORDERED
from local.chaos.history import Histories, Receipt
from local.chaos.streams import SUBSCRIPTION, Destination
from outbox_relay.inbox.event_loop import end_tasks

_PREFETCH = 100
_PAUSE_S = 0.1
# A handshake that is not answered keeps azure-servicebus waiting forever.
_SESSION_S = 20.0
_LATE_S = (0.5, 3.0)
_MISHAP = 0.002
_UNUSUAL = 0.02


class Mishap(Enum):
    """The action of a consumer instead of completing a message; afterwards it leaves the session."""

    ABANDON = "abandon"
    CRASH = "crash"


_MISHAPS = (Mishap.ABANDON, Mishap.CRASH)


class Consumer:
    """Receives one session of a destination after another. `met` counts the edge cases in how it settled."""

    def __init__(
        self,
        client: ServiceBusClient,
        destination: Destination,
        history: Histories,
        rng: random.Random,
        met: Counter[str],
        contents: Contents | None = None,
    ) -> None:
        self._contents = contents
        self._client = client
        self._destination = destination
        self._history = history
        self._rng = rng
        self._met = met

    async def consume(self) -> None:
        """Receive until cancelled."""
        while True:
            session = asyncio.create_task(self._receive_session())
            try:
                await asyncio.wait({session}, timeout=_SESSION_S)
            finally:
                await end_tasks([session])
            if not session.cancelled():
                session.result()

    async def _receive_session(self) -> None:
        receiver = self._receiver()
        try:
            await receiver.__aenter__()
            await self._drain(receiver)
        except OperationTimeoutError:
            pass  # no session had messages
        except (AzureError, OSError, ValueError, KeyError, TypeError, AttributeError):
            # Under faults, azure-servicebus 7.15.0 raises all of these. Unsettled messages are redelivered.
            await asyncio.sleep(_PAUSE_S)
        finally:
            await _close(receiver)

    def _receiver(self) -> ServiceBusReceiver:
        options: dict[str, Any] = {
            "session_id": NEXT_AVAILABLE_SESSION,
            "max_wait_time": 2.0,
            "prefetch_count": _PREFETCH,
        }
        entity = self._destination.entity
        if self._destination.is_queue:
            return self._client.get_queue_receiver(entity, **options)
        return self._client.get_subscription_receiver(entity, SUBSCRIPTION, **options)

    async def _drain(self, receiver: ServiceBusReceiver) -> None:
        while messages := await receiver.receive_messages(max_message_count=50, max_wait_time=0.3):
            if len(messages) > 1 and self._rng.random() < _UNUSUAL:
                await self._settle_reordered(receiver, messages)
            elif not await self._settle_in_order(receiver, messages):
                return

    async def _settle_in_order(
        self, receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
    ) -> bool:
        """Settle one after another; returns whether to keep receiving from the session."""
        for message in messages:
            mishap = self._rng.choice(_MISHAPS) if self._rng.random() < _MISHAP else None
            if mishap is Mishap.ABANDON:
                await receiver.abandon_message(message)
            await self._received(receiver, message, processed=mishap is None)
            if mishap is not None:
                return False
            if self._rng.random() < _MISHAP:
                self._met[CONSUMER_SETTLED_LATE] += 1
                await asyncio.sleep(self._rng.uniform(*_LATE_S))
            await receiver.complete_message(message)
        return True

    async def _settle_reordered(
        self, receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        """Process in order, complete out of order: redeliveries then fall between completed messages."""
        for message in messages:
            await self._received(receiver, message, processed=True)
        self._met[CONSUMER_SETTLED_REORDERED] += 1
        for message in self._rng.sample(messages, len(messages)):
            await receiver.complete_message(message)

    async def _received(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, *, processed: bool
    ) -> None:
        properties = message.application_properties or {}
        body = b"".join(message.body)
        if self._contents is not None:
            body = await self._contents.body(body, properties)
        self._history.received(
            self._destination,
            Receipt(
                identifier=message.message_id or "",
                key=receiver.session.session_id,
                sequence_number=message.sequence_number or 0,
                delivery_count=message.delivery_count or 0,
                body=body,
                subject=message.subject or "",
                sequence=properties.get(b"sequence"),
                processed=processed,
            ),
        )


async def _close(receiver: ServiceBusReceiver) -> None:
    try:
        async with asyncio.timeout(5):
            await receiver.close()
    except (AzureError, OSError, TimeoutError, ValueError, AttributeError):
        pass  # the connection was cut, and the broker has released the session
