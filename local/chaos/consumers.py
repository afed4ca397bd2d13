"""Subscribers that crash, abandon and lose locks, and still settle every message in the order of its session."""

from __future__ import annotations

import asyncio
import random
from enum import Enum

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from local.chaos.history import History, Receipt

_PREFETCH = 100
_PAUSE_S = 0.1


class Mishap(Enum):
    """What a consumer does instead of completing a message. After any of them it leaves the session."""

    ABANDON = "abandon"
    CRASH = "crash"


_MISHAPS = (Mishap.ABANDON, Mishap.CRASH)


async def consume(client: ServiceBusClient, subscription: str, history: History, rng: random.Random) -> None:
    """Receive one session after another, until cancelled."""
    while True:
        receiver = client.get_subscription_receiver(
            "domain-events",
            subscription,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=2.0,
            prefetch_count=_PREFETCH,
        )
        try:
            await receiver.__aenter__()
            await _drain(receiver, history, rng)
        except OperationTimeoutError:
            pass  # no session had messages
        except (AzureError, OSError, ValueError, KeyError, TypeError, AttributeError):
            # Faults reach the SDK in places where it raises whatever it trips over (7.15.0); what was not
            # settled comes again.
            await asyncio.sleep(_PAUSE_S)
        finally:
            await _close(receiver)


async def _drain(receiver: ServiceBusReceiver, history: History, rng: random.Random) -> None:
    key = receiver.session.session_id
    while messages := await receiver.receive_messages(max_message_count=50, max_wait_time=0.3):
        for message in messages:
            mishap = rng.choice(_MISHAPS) if rng.random() < 0.002 else None
            if mishap is Mishap.ABANDON:
                await receiver.abandon_message(message)
            history.received(_receipt(key, message, processed=mishap is None))
            if mishap is not None:
                return
            await receiver.complete_message(message)


def _receipt(key: str, message: ServiceBusReceivedMessage, *, processed: bool) -> Receipt:
    return Receipt(
        identifier=message.message_id or "",
        key=key,
        sequence_number=message.sequence_number or 0,
        delivery_count=message.delivery_count or 0,
        body=b"".join(message.body),
        subject=message.subject or "",
        processed=processed,
    )


async def _close(receiver: ServiceBusReceiver) -> None:
    try:
        async with asyncio.timeout(5):
            await receiver.close()
    except (AzureError, OSError, TimeoutError, ValueError, AttributeError):
        pass  # its connection was cut: the broker has freed the session already
