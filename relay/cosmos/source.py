"""The outbox container as the pipeline's source: change batches, and the leases as its checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from relay.cosmos.changes import ChangeBatch
from relay.cosmos.containers import Containers
from relay.cosmos.documents import select
from relay.events import Document, Event, Received, Rejected

CosmosBatch = ChangeBatch | Iterable[Document | None]
"""What the trigger delivered, as text or parsed."""

# Number of items that are compared before other tasks run: some 3 ms, or 30 where the SDK hashes.
_AT_ONCE = 256

_UNUSABLE = object()


class CosmosSource:
    """Reads change batches; `ports.Source` says what of it is promised."""

    def __init__(self, event_type: str, containers: Containers) -> None:
        """`event_type` is the type of the documents to relay."""
        self._event_type = event_type
        self._containers = containers

    def read(self, batch: CosmosBatch, /) -> Received:
        """The events of a batch. Raises ChangesError where its text is no JSON array of documents."""
        documents = batch.documents() if isinstance(batch, ChangeBatch) else batch
        return select(documents, self._event_type)

    async def settled(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        """The positions of the items that the relay's own leases have passed. Raises LeaseError."""
        positions = await self._containers.positions()
        passed = []
        for number, item in enumerate(items, 1):
            lsn, value = item.document.get("_lsn"), _partition_key(item)
            if type(lsn) is int and value is not _UNUSABLE and await positions.has_passed(value, lsn):
                passed.append(item.position)
            if number % _AT_ONCE == 0:
                # Other invocations and renewals must go on meanwhile.
                await asyncio.sleep(0)
        return frozenset(passed)


def _partition_key(item: Event | Rejected) -> Any:
    """The partition key value under which Cosmos DB has stored the document: null and numbers are legal too."""
    if item.partition_key is not None:
        return item.partition_key
    if "partitionKey" not in item.document:
        from azure.cosmos.partition_key import NonePartitionKeyValue

        return NonePartitionKeyValue
    value = item.document["partitionKey"]
    return value if value is None or isinstance(value, str | int | float) else _UNUSABLE
