"""Stores the documents of a parked key: in their order, and only while the key is parked.

Each batch touches the key's marker and creates records. A release removes the marker only as it has read it, so of
a batch and a release at the same time one fails: no record can be left behind in a key that is not parked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relay import holds
from relay.errors import StoreError
from relay.place import Place
from relay.quarantine.items import (
    BATCH_BYTES,
    BATCH_OPERATIONS,
    BatchFailed,
    Create,
    ItemExists,
    ItemNotFound,
    Items,
    ItemTooLarge,
    Operation,
    Touch,
)
from relay.quarantine.record import in_parts

Record = Mapping[str, Any]

# The marker is the batch's first operation.
_RECORDS = BATCH_OPERATIONS - 1
_MARKER = 0


class NotParked(Exception):
    """The key was released in the meantime: its events are to be published again."""


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """One key's part of the quarantine; `stored` is called with each newly stored record."""

    items: Items
    partition_key: str
    stored: Callable[[Record], None]

    async def store(self, records: Sequence[Record], *, parks: bool, place: Place | None = None) -> None:
        """Store records in order; those that an earlier attempt has stored stay as they are.

        Args:
            parks: Whether the first of them parks the key, if it is not parked yet.
            place: The place of the first one's document in its feed, if that is known.

        Raises:
            NotParked: The key is not parked, or no longer, and these records do not park it.
            StoreError: The store cannot be written.
        """
        marker = holds.marker(self.partition_key, records[0]["id"], place) if parks else None
        for chunk in _chunks(records):
            await self._store(chunk, marker)
            marker = None

    async def _store(self, records: Sequence[Record], marker: Record | None) -> None:
        """All of them in one batch, with the marker if it has to be created; otherwise one by one."""
        refusal = await self._batch(records, marker)
        if refusal is None:
            for record in records:
                self.stored(record)
        elif len(records) > 1:
            for record in records:
                await self._store([record], marker)
                marker = None
        elif refusal is ItemExists:
            # The record is there already. In another mode it was stored without parking its key.
            await self._batch([], marker)
        else:
            await self._store([await in_parts(self.items, records[0])], marker)

    async def _batch(self, records: Sequence[Record], marker: Record | None) -> type[StoreError] | None:
        """Returns None if it was stored; the refusal if a record exists already, or does not fit."""
        guard: Operation = Touch(holds.PARKED_ID) if marker is None else Create(marker)
        try:
            await self.items.batch(self.partition_key, [guard, *map(Create, records)])
        except BatchFailed as failed:
            refused = failed.error
            if failed.index == _MARKER and isinstance(refused, ItemExists):
                return await self._batch(records, None)
            if failed.index == _MARKER and isinstance(refused, ItemNotFound):
                raise NotParked from failed
            if isinstance(refused, ItemExists):
                return ItemExists
            if failed.index != _MARKER and isinstance(refused, ItemTooLarge) and _divisible(records):
                return ItemTooLarge
            raise
        return None


def _divisible(records: Sequence[Record]) -> bool:
    """Whether storing each record separately, or in parts, can help."""
    return len(records) > 1 or any("document" in record for record in records)


def _chunks(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Records as they fit into batches, in order; one that is too large has its own batch."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        # As it is stored: all but ASCII escaped.
        length = len(json.dumps(record))
        if chunk and (len(chunk) == _RECORDS or size + length > BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += length
    if chunk:
        yield chunk
