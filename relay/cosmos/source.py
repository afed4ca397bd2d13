"""The outbox container as the pipeline's source: change batches, and the leases as its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relay.cosmos.changes import ChangeBatch
from relay.cosmos.containers import Containers
from relay.cosmos.documents import select
from relay.events import Document, Event, Received, Rejected

CosmosBatch = ChangeBatch | Iterable[Document | None]
"""What the trigger delivered, as text or parsed."""


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
        return frozenset(
            [
                item.position
                for item in items
                if item.partition_key is not None
                and isinstance(lsn := item.document.get("_lsn"), int)
                and await positions.passed(item.partition_key, lsn)
            ]
        )
