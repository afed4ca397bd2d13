"""The article's handler, ported unchanged: one sender, one batch per partition key, one key after another.

"Transactional Outbox pattern with Azure Cosmos DB", HandleChangesAsync: documents without `type` or `data` are
skipped; it is an error if a key's events do not fit into one batch, or if a send fails.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from azure.functions import Document, DocumentList
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from local.stack.environment import TOPIC

_EVENT_TYPE = "domainEvent"


class Article:
    """The article's handler on one sender.

    It has two forms: unchanged, and with the relay's application properties in its messages, which shows what the
    properties alone cost.
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
        self._prepared = invocations

    async def run(self) -> int:
        return sum([await self._handle_changes(documents) for documents in self._prepared])

    async def close(self) -> None:
        await self._sender.close()
        await self._client.close()

    async def _handle_changes(self, changes: DocumentList) -> int:
        by_key = self._by_key(changes)
        for messages in by_key.values():
            batch = await self._sender.create_message_batch()
            for message in messages:
                batch.add_message(message)
            await self._sender.send_messages(batch)
        return len(by_key)

    def _by_key(self, changes: DocumentList) -> dict[str, list[ServiceBusMessage]]:
        by_key: dict[str, list[ServiceBusMessage]] = {}
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
                by_key.setdefault(document["partitionKey"], []).append(message)
        return by_key


def _properties(document: Document) -> dict[str | bytes, Any]:
    return {
        "type": document["type"],
        "cosmosTimestamp": document["_ts"],
        "createdAt": document["data"]["createdAt"],
    }
