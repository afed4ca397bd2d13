"""The handlers of `verification.bench.effects`, with their effects in a container of Cosmos DB."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from azure.servicebus import ServiceBusReceivedMessage

import inbox
from verification.bench.baselines.receivers import Handle
from verification.bench.effects import Effects, WithInbox, number_of


class CosmosDb:
    """A container. The effect is a document of the key, with the number of its last event."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    @classmethod
    @asynccontextmanager
    async def open(cls, connection_string: str, sessions: int) -> AsyncIterator[CosmosDb]:
        """Connect, and make the container."""
        async with CosmosClient.from_connection_string(connection_string) as client:
            database = await client.create_database_if_not_exists("bench")
            path = PartitionKey("/partitionKey")
            yield cls(await database.create_container_if_not_exists("effects", path))

    def with_inbox(self, effects: Effects) -> WithInbox:
        store = inbox.CosmosStore(self._container)

        async def handle(message: inbox.Message) -> None:
            number = number_of(message.body)
            async with store.once(message) as arrival:
                if arrival.first:
                    arrival.connection.upsert(_count(message.key, number))
            if arrival.first:
                effects.add(message.key, number)

        return handle

    def by_hand(self, effects: Effects) -> Handle:
        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            note = {"id": f"handled {message.message_id}", "partitionKey": key}
            # A handler that reads has to know first whether its effect is there already.
            try:
                await self._container.read_item(note["id"], key)
            except CosmosResourceNotFoundError:
                operations = [("create", (note,)), ("upsert", (_count(key, number),))]
                await self._container.execute_item_batch(operations, partition_key=key)
                effects.add(key, number)

        return handle

    def without_once(self, effects: Effects) -> Handle:
        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            await self._container.upsert_item(_count(key, number))
            effects.add(key, number)

        return handle


def _count(key: str, number: int) -> dict[str, object]:
    return {"id": "count", "partitionKey": key, "times": number}
