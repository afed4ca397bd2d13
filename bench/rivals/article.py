"""The article's handler, ported as it stands: one sender, one batch a partition key, one key after another.

"Transactional Outbox pattern with Azure Cosmos DB", HandleChangesAsync: documents without `type` or `data` are
skipped, a batch that does not hold all of a key's events is an error, and so is a send that fails.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from azure.functions import Document, DocumentList
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from bench.rivals.rival import CannotCarry
from local.stack.environment import TOPIC

_EVENT_TYPE = "domainEvent"


class Article:
    """The article's handler on one sender.

    `name` tells the two forms apart: as it stands, and with the relay's application properties in its messages, to
    show what these cost on their own.
    """

    def __init__(self, connection_string: str, *, with_properties: bool = False) -> None:
        self.name = "article, same message" if with_properties else "article"
        self._with_properties = with_properties
        self._client = ServiceBusClient.from_connection_string(connection_string)
        self._sender: ServiceBusSender = self._client.get_topic_sender(TOPIC)
        self._prepared: Sequence[DocumentList] = ()

    async def open(self) -> None:
        await self._sender.create_message_batch()

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        for documents in invocations[:1]:
            await self._refuse_what_does_not_fit(documents)
        self._prepared = invocations

    async def run(self) -> int:
        return sum([await self._handle_changes(documents) for documents in self._prepared])

    async def close(self) -> None:
        await self._sender.close()
        await self._client.close()

    async def _handle_changes(self, changes: DocumentList) -> int:
        partitioned = self._partitioned(changes)
        for messages in partitioned.values():
            batch = await self._sender.create_message_batch()
            for message in messages:
                batch.add_message(message)
            await self._sender.send_messages(batch)
        return len(partitioned)

    async def _refuse_what_does_not_fit(self, changes: DocumentList) -> None:
        for messages in self._partitioned(changes).values():
            batch = await self._sender.create_message_batch()
            try:
                for message in messages:
                    batch.add_message(message)
            except MessageSizeExceededError as error:
                raise CannotCarry("the article's handler puts a key's events into one batch, or fails") from error

    def _partitioned(self, changes: DocumentList) -> dict[str, list[ServiceBusMessage]]:
        partitioned: dict[str, list[ServiceBusMessage]] = {}
        for document in changes:
            if "type" not in document or "data" not in document:
                continue
            if document["type"] == _EVENT_TYPE:
                message = ServiceBusMessage(
                    json.dumps(document["data"]),
                    content_type="application/json",
                    subject=document["data"]["action"],
                    message_id=document["id"],
                    partition_key=document["partitionKey"],
                    session_id=document["partitionKey"],
                    application_properties=_properties(document) if self._with_properties else None,
                )
                partitioned.setdefault(document["partitionKey"], []).append(message)
        return partitioned


def _properties(document: Document) -> dict[str | bytes, Any]:
    return {
        "type": document["type"],
        "cosmosTimestamp": document["_ts"],
        "createdAt": document["data"]["createdAt"],
    }
