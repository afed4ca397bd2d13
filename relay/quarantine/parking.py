"""Stores the documents of a parked key: in their order, and only while the key is parked.

Each batch touches the key's marker and creates records. A release removes the marker only as it has read it, so of
a batch and a release at the same time one fails: no record can be left behind in a key that is not parked. A
document that is set aside for a reason of its own has a batch of its own, with the order that holds its event.

What was parked and has been released or discarded since left an order. So that it does not come back, its order is
created and deleted in the batch of its record: where there is one, the batch is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.core import holds
from relay.core.errors import StoreError
from relay.core.events import Rejected
from relay.core.place import Place
from relay.quarantine.items import (
    BATCH_BYTES,
    BATCH_OPERATIONS,
    BatchFailed,
    Create,
    Delete,
    ItemExists,
    ItemNotFound,
    ItemTooLarge,
    Operation,
    Touch,
    Writable,
)
from relay.quarantine.record import hold, in_parts, is_held

Record = Mapping[str, Any]

# The marker is the batch's first operation. A record takes one, and an order that comes and goes two.
_MARKER = 0
_MARKER_OPERATIONS, _RECORD_OPERATIONS, _ORDER_OPERATIONS = 1, 1, 2


class NotParked(Exception):
    """A record, or all of them, left quarantine in the meantime: the next attempt looks at what is held back."""


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """One key's part of the quarantine; `stored` is called with each newly stored record.

    By the ids of their records, `held` are the documents that have an order of their own, and `behind` those that
    are parked behind them.
    """

    items: Writable
    partition_key: str
    stored: Callable[[Record], None]
    held: Mapping[str, Rejected] = field(default_factory=dict)
    behind: Mapping[str, Rejected] = field(default_factory=dict)

    async def store(self, records: Sequence[Record], *, parks: bool, place: Place | None = None) -> None:
        """Store records in order; those that an earlier attempt has stored stay as they are.

        Args:
            parks: Whether the first of them parks the key, if it is not parked yet.
            place: The place of the first one's document in its feed, if that is known.

        Raises:
            NotParked: The key is not parked, or no longer, and these records do not park it; or one was stored
                before, and has been released or discarded since.
            StoreError: The store cannot be written.
        """
        marker = holds.parked_marker_item(self.partition_key, records[0]["id"], place) if parks else None
        for chunk in _chunks(records, self.held, self.behind):
            await self._store(chunk, marker)
            marker = None

    async def _store(self, records: Sequence[Record], marker: Record | None) -> None:
        """Store all of the records in one batch, with the marker if it has to be created; otherwise one by one."""
        refusal = await self._batch(records, marker, self.held.get(records[0]["id"]))
        if refusal is None:
            for record in records:
                self.stored(record)
        elif len(records) > 1:
            for record in records:
                await self._store([record], marker)
                marker = None
        elif refusal is ItemExists:
            # The record is there already. In another mode it was stored without parking its key.
            await self._batch([], marker, self.held.get(records[0]["id"]))
        else:
            await self._store([await in_parts(self.items, records[0])], marker)

    async def _batch(
        self,
        records: Sequence[Record],
        marker: Record | None,
        item: Rejected | None,
        unguarded: Container[str] = (),
    ) -> type[StoreError] | None:
        """Store a batch, and return None or the refusal.

        It is refused if a record exists already, or does not fit.
        """
        first: Operation = Touch(holds.PARKED_ID) if marker is None else Create(marker)
        operations = [first, *map(Create, records)]
        guarded = [each for each in records if each["id"] in self.behind and each["id"] not in unguarded]
        try:
            await self._carry_out([*operations, *self._without_orders(guarded)], item)
        except BatchFailed as failed:
            refused = failed.error
            if failed.index == _MARKER and isinstance(refused, ItemExists):
                return await self._batch(records, None, item, unguarded)
            if failed.index == _MARKER and isinstance(refused, ItemNotFound):
                raise NotParked from failed
            if failed.index is not None and failed.index >= len(operations):
                record = guarded[(failed.index - len(operations)) // 2]
                if await is_held(self.items, self.partition_key, self.behind[record["id"]]):
                    raise NotParked from failed
                # The order is about another version of the event.
                others = {each["id"] for each in records if each not in guarded}
                return await self._batch(records, marker, item, others | {record["id"]})
            if isinstance(refused, ItemExists):
                return ItemExists
            if failed.index != _MARKER and isinstance(refused, ItemTooLarge) and _divisible(records):
                return ItemTooLarge
            raise
        return None

    def _without_orders(self, records: Sequence[Record]) -> Iterator[Operation]:
        """Return operations that are refused if an order holds the event of one of these records.

        They change nothing.
        """
        for record in records:
            item = self.behind[record["id"]]
            order = holds.fulfilled_order_item(self.partition_key, item.id, item.document.place)
            yield Create(order)
            yield Delete(order["id"])

    async def _carry_out(self, operations: Sequence[Operation], item: Rejected | None) -> None:
        """Carry out operations in one batch, with the order that holds `item` if it is given."""
        if item is None or not await hold(self.items, self.partition_key, item, *operations):
            if item is not None and len(operations) > 1:
                raise NotParked
            await self.items.batch(self.partition_key, operations)


def _divisible(records: Sequence[Record]) -> bool:
    """Return True if storing each record separately, or in parts, can help."""
    return len(records) > 1 or any("document" in record for record in records)


def _chunks(records: Sequence[Record], alone: Container[str], guarded: Container[str]) -> Iterator[list[Record]]:
    """Yield records as they fit into batches, in order.

    One that is too large, or one of `alone`, has its own batch.
    """
    chunk: list[Record] = []
    size, operations = 0, _MARKER_OPERATIONS
    for record in records:
        # As it is stored: all but ASCII escaped.
        length = len(json.dumps(record))
        needed = _RECORD_OPERATIONS + (_ORDER_OPERATIONS if record["id"] in guarded else 0)
        is_full = operations + needed > BATCH_OPERATIONS or size + length > BATCH_BYTES
        if chunk and (is_full or record["id"] in alone or chunk[0]["id"] in alone):
            yield chunk
            chunk, size, operations = [], 0, _MARKER_OPERATIONS
        chunk.append(record)
        size += length
        operations += needed
    if chunk:
        yield chunk
