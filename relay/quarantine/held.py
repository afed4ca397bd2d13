"""Stores a record together with the order that keeps its event from being published or quarantined again.

Both are written in one batch: there is no moment at which one of them exists alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relay.errors import StoreError
from relay.events import Rejected
from relay.quarantine import holds
from relay.quarantine.items import (
    BatchFailed,
    Create,
    Delete,
    ItemExists,
    ItemNotFound,
    Items,
    ItemTooLarge,
    Operation,
)
from relay.quarantine.record import in_parts

# Maximum number of times that an operator's order may come or go while the batch is written.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """One document's part of the quarantine.

    Attributes:
        items: The store of the quarantine.
        item: The document, which has a partition key.
    """

    items: Items
    item: Rejected

    async def store(self, record: Mapping[str, Any]) -> bool:
        """Store a record and hold its event; returns whether the record is new. Raises StoreError."""
        try:
            await self._write(Create(record))
        except BatchFailed as failed:
            if isinstance(failed.error, ItemExists):
                await self.hold()
                return False
            if isinstance(failed.error, ItemTooLarge) and "document" in record:
                return await self.store(await in_parts(self.items, record))
            raise
        return True

    async def hold(self) -> None:
        """Hold an event whose record is stored. Raises StoreError."""
        await self._write()

    async def _write(self, *first: Operation) -> None:
        """Carry out `first` and put the order in the place of the one that may be there.

        Raises:
            BatchFailed: `first` was refused.
        """
        order = holds.carried_out(self.item)
        assert order is not None
        assert self.item.partition_key is not None
        replaces = False
        for _ in range(_TRIES):
            removal = [Delete(order["id"])] if replaces else []
            try:
                await self.items.batch(self.item.partition_key, [*first, *removal, Create(order)])
            except BatchFailed as failed:
                if failed.index is None or failed.index < len(first):
                    raise
                if not isinstance(failed.error, ItemNotFound if replaces else ItemExists):
                    raise
                replaces = not replaces
            else:
                return
        raise StoreError(f"the order {order['id']!r} is being changed by others")
