"""Another client of the same namespace, whose refused requests must not disturb the relay."""

from __future__ import annotations

import asyncio

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from local.chaos.admin import NotInjected
from local.stack.environment import TOPIC

_WITHIN_S = 10.0
_PAUSE_S = 0.2

# Longer than a property may be: "Service Bus quotas", learn.microsoft.com.
_TOO_LONG = "x" * 40_000
_BYSTANDER = "bystander"


class Bystander:
    """Another application. Its methods raise NotInjected if another fault prevents theirs."""

    def __init__(self, servicebus: ServiceBusClient) -> None:
        self._servicebus = servicebus

    async def inject(self, kind: str) -> None:
        """Send a request of this kind, which must be refused."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                if kind == "oversized-properties":
                    message = ServiceBusMessage("", session_id=_BYSTANDER, subject=_TOO_LONG)
                    # Another fault can refuse it first, for another reason.
                    while "amqp:internal-error" not in await self._refusal(TOPIC, message):
                        await asyncio.sleep(_PAUSE_S)
                else:
                    await self._refusal("no-such-topic", ServiceBusMessage(""))
        except TimeoutError as error:
            raise NotInjected(f"{kind}: not answered within {_WITHIN_S:.0f} s") from error

    async def _refusal(self, topic: str, message: ServiceBusMessage) -> str:
        """Return the error with which a message is refused."""
        try:
            async with self._servicebus.get_topic_sender(topic) as sender:
                await sender.send_messages(message)
        except ServiceBusError as error:
            return str(error)
        raise NotInjected(f"'{topic}' accepted a message that it must refuse")
