"""Other clients of the same namespace and account, whose refused requests must not disturb the relay."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError
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

_TOKEN_AHEAD = ",".join(f"{number}:-1#{10**12}" for number in range(64))
# Deeper than the host's parser accepts: Json.NET 13's MaxDepth is 64.
_TOO_DEEP = 70


class Bystander:
    """Another application of the namespace. Its methods raise NotInjected if another fault prevents theirs."""

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


class AccountBystander:
    """Another application of the account. Its methods raise NotInjected if another fault prevents theirs."""

    def __init__(self, data: ContainerProxy) -> None:
        self._data = data

    async def read_ahead(self) -> None:
        """Read with the session token of a write that has not happened."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._read_ahead()
        except TimeoutError as error:
            raise NotInjected(f"read-ahead: not answered within {_WITHIN_S:.0f} s") from error

    async def _read_ahead(self) -> None:
        try:
            await self._data.read_item(
                "none", partition_key=_BYSTANDER, headers={"x-ms-session-token": _TOKEN_AHEAD}
            )
        except KeyError:
            return  # azure-cosmos 4.17.1, on a 404/1002, removes a token that it does not have
        except CosmosHttpResponseError as error:
            if error.status_code != 404:
                raise NotInjected(f"a read ahead of the account was answered with {error.status_code}") from error
            return
        raise NotInjected("a read ahead of the account succeeded")

    async def withhold_page(self, until: Callable[[], Awaitable[None]]) -> None:
        """Write a document that the host cannot parse, which blocks its physical partition; then remove it.

        `until` returns when it may be removed. Removal is retried until it succeeds.
        """
        identifier = str(uuid.uuid4())
        deep: object = "deep"
        for _ in range(_TOO_DEEP):
            deep = [deep]
        document = {"id": identifier, "partitionKey": f"deep-{identifier}", "type": "contact", "data": deep}
        try:
            await self._data.create_item(document)
            await until()
        except AzureError as error:
            raise NotInjected(f"the document could not be written: {type(error).__name__}") from error
        finally:
            await self._remove(document)

    async def _remove(self, document: dict[str, object]) -> None:
        while True:
            try:
                await self._data.delete_item(str(document["id"]), partition_key=str(document["partitionKey"]))
            except CosmosHttpResponseError as error:
                if error.status_code == 404:
                    return
            except AzureError:
                pass
            await asyncio.sleep(_PAUSE_S)
