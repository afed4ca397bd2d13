"""Writes to the outbox for a measurement, over partition keys whose physical partitions are known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import TracebackType
from typing import Any, Self

from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.partitioning import PartitionKeyDefinition, locate

_CONTAINER = "data"
_DEFINITION = PartitionKeyDefinition.from_json({"paths": ["/partitionKey"], "kind": "Hash", "version": 2})


def balanced_keys(partitions: int, *, prefix: str = "key") -> Iterator[str]:
    """Yield endless partition keys that belong to the physical partitions in turn. All have equally many."""
    waiting: list[list[str]] = [[] for _ in range(partitions)]
    for number in count():
        key = f"{prefix}-{number:06}-4982-4735-9422-c39a7c4af5c2"
        waiting[partition_of(key, partitions)].append(key)
        while all(waiting):
            for keys in waiting:
                yield keys.pop(0)


def partition_of(key: str, partitions: int) -> int:
    """Return the number of the key's physical partition, of this many equal ones."""
    return locate(_DEFINITION.split(partitions), _DEFINITION.of_values([key]).effective)


def event(identifier: str, partition_key: str) -> dict[str, Any]:
    """Return a domain event of the article's shape; about 400 bytes."""
    return {
        "id": identifier,
        "partitionKey": partition_key,
        "type": "domainEvent",
        "data": {
            "name": {"firstName": "Jane", "lastName": "Doe"},
            "contactId": partition_key,
            "action": "ContactNameUpdatedEvent",
            "id": identifier,
            "createdAt": "2026-02-09T11:37:37.3022907+02:00",
        },
        "ttl": 864_000,
    }


def _contact(partition_key: str, version: int) -> dict[str, Any]:
    """Return the business document that accompanies the events of its key."""
    return {
        "id": partition_key,
        "partitionKey": partition_key,
        "type": "contact",
        "data": {
            "name": {"firstName": "Jane", "lastName": "Doe"},
            "email": "jane@contoso.com",
            "version": version,
        },
        "ttl": -1,
    }


class Outbox:
    """The container that the relay watches. Use it as an async context manager."""

    def __init__(self, connection_string: str) -> None:
        self._client = CosmosClient.from_connection_string(connection_string)
        self._container = self._client.get_database_client(DATABASE).get_container_client(_CONTAINER)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(exception_type, exception, traceback)

    async def commit(self, partition_key: str, identifier: str, version: int) -> None:
        """Commit one transactional batch.

        As the article's service writes it, it has a business document and its event.
        """
        documents = (_contact(partition_key, version), event(identifier, partition_key))
        operations = [("upsert", (document,)) for document in documents]
        await self._container.execute_item_batch(operations, partition_key=partition_key)
