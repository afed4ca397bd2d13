"""The SDK's ceiling: its public API and no relay.

Messages are put into batches before the timing: no program that sends with this SDK's public API is faster. The
batches of a key are sent in order.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import certifi
import orjson
from azure.functions import Document, DocumentList
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from local.stack.environment import TOPIC
from verification.bench.documents import EVENT_TYPE

_ENVELOPE_BYTES = 96 + 3 * 36
"""Room for the properties that the SDK puts on a batch's envelope without counting them. The relay leaves the same
room for ids and keys of 36 characters, so both fill their batches equally."""

SENDERS = 32
"""The number of senders, as many as the relay's pool has."""

MessageFields = dict[str, Any]
"""The arguments of AmqpAnnotatedMessage: the SDK's cheapest form of a message, which the relay uses too."""


class Senders:
    """A number of open senders, each used by one task at a time."""

    def __init__(self, connection_string: str, number: int) -> None:
        # One context for all: by default the SDK reads the certificates again for each connection.
        self._client = ServiceBusClient.from_connection_string(
            connection_string, ssl_context=ssl.create_default_context(cafile=certifi.where())
        )
        self.all: list[ServiceBusSender] = [self._client.get_topic_sender(TOPIC) for _ in range(number)]
        self.limit = 0

    async def open(self) -> None:
        """Open every link, and read its batch size limit."""
        batches = await asyncio.gather(*(sender.create_message_batch() for sender in self.all))
        self.limit = min(batch.max_size_in_bytes for batch in batches) - _ENVELOPE_BYTES

    async def close(self) -> None:
        await asyncio.gather(*(sender.close() for sender in self.all))
        await self._client.close()


class Prebuilt:
    """Sends batches that were built beforehand."""

    name = "SDK, prebuilt"

    def __init__(self, connection_string: str, senders: int) -> None:
        self._senders = Senders(connection_string, senders)
        self._prepared: list[list[list[ServiceBusMessageBatch]]] = []

    async def open(self) -> None:
        await self._senders.open()

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        self._prepared = [
            [await self._batches_of(fields) for fields in fields_by_key(documents).values()]
            for documents in invocations
        ]

    async def run(self) -> int:
        for keys in self._prepared:
            waiting = iter(keys)

            async def work(sender: ServiceBusSender, waiting: Any = waiting) -> None:
                for batches in waiting:
                    for batch in batches:
                        await sender.send_messages(batch)

            await asyncio.gather(*(work(sender) for sender in self._senders.all[: len(keys)]))
        return sum(len(batches) for keys in self._prepared for batches in keys)

    async def close(self) -> None:
        await self._senders.close()

    async def _batches_of(self, fields: Sequence[MessageFields]) -> list[ServiceBusMessageBatch]:
        builder, limit = self._senders.all[0], self._senders.limit
        batches = [await builder.create_message_batch(limit)]
        for each in fields:
            message = AmqpAnnotatedMessage(**each)
            try:
                batches[-1].add_message(message)
            except MessageSizeExceededError:
                batches.append(await builder.create_message_batch(limit))
                batches[-1].add_message(message)
        return batches


def fields_by_key(documents: DocumentList) -> dict[str, list[MessageFields]]:
    """Return the message of each event, as the message contract defines it."""
    found: dict[str, list[MessageFields]] = {}
    for document in documents:
        if document["type"] == EVENT_TYPE:
            found.setdefault(document["partitionKey"], []).append(_fields(document))
    return found


def _fields(document: Document) -> MessageFields:
    data: Mapping[str, Any] = document["data"]
    return {
        "data_body": orjson.dumps(data),
        "properties": {
            "message_id": document["id"],
            "group_id": document["partitionKey"],
            "subject": data["action"],
            "content_type": "application/json",
        },
        "annotations": {"x-opt-partition-key": document["partitionKey"]},
        "application_properties": {
            "type": document["type"],
            "cosmosTimestamp": document["_ts"],
            "createdAt": data["createdAt"],
        },
    }
