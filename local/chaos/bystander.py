"""What others do on the same account and namespace: requests that are refused, and must disturb nobody else."""

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

from local.chaos.admin import DidNotStrike
from local.stack.environment import TOPIC

_WITHIN_S = 10.0
_PAUSE_S = 0.2

# More than a property may hold: "Service Bus quotas", learn.microsoft.com.
_TOO_LONG = "x" * 40_000
_TOKEN_AHEAD = ",".join(f"{number}:-1#{10**12}" for number in range(64))
# Deeper than the host's parser goes: Json.NET 13's MaxDepth.
_TOO_DEEP = 70
_OF_A_BYSTANDER = "bystander"


class Bystander:
    """Another application. Each of its methods raises DidNotStrike where a fault came first."""

    def __init__(self, data: ContainerProxy, servicebus: ServiceBusClient) -> None:
        self._data = data
        self._servicebus = servicebus

    async def strike(self, kind: str) -> None:
        """Do what is refused."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                if kind == "oversized-properties":
                    message = ServiceBusMessage("", session_id=_OF_A_BYSTANDER, subject=_TOO_LONG)
                    # Another fault may refuse it first, for another reason.
                    while "amqp:internal-error" not in await self._refusal(TOPIC, message):
                        await asyncio.sleep(_PAUSE_S)
                elif kind == "unknown-entity":
                    await self._refusal("no-such-topic", ServiceBusMessage(""))
                else:
                    await self._read_ahead()
        except TimeoutError as error:
            raise DidNotStrike(f"{kind}: not answered within {_WITHIN_S:.0f} s") from error

    async def _refusal(self, topic: str, message: ServiceBusMessage) -> str:
        """What a message that has to be refused is refused with."""
        try:
            async with self._servicebus.get_topic_sender(topic) as sender:
                await sender.send_messages(message)
        except ServiceBusError as error:
            return str(error)
        raise DidNotStrike(f"what '{topic}' has to refuse was accepted")

    async def _read_ahead(self) -> None:
        """Read with the session token of a write that this account has not seen."""
        try:
            await self._data.read_item(
                "none", partition_key=_OF_A_BYSTANDER, headers={"x-ms-session-token": _TOKEN_AHEAD}
            )
        except KeyError:
            return  # azure-cosmos (4.17.1), answered with 404/1002, forgets a token that it does not have
        except CosmosHttpResponseError as error:
            if error.status_code != 404:
                raise DidNotStrike(f"a read ahead was answered with {error.status_code}") from error
            return
        raise DidNotStrike("a read ahead was answered")

    async def withhold_page(self, until: Callable[[], Awaitable[None]]) -> None:
        """Have a document in the feed that the host cannot parse: its partition stands still until it is removed.

        It is removed in the end, whatever it takes.
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
            raise DidNotStrike(f"the document could not be written: {type(error).__name__}") from error
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
