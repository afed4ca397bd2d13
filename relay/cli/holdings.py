"""Parked partition keys and orders to set events aside, as the commands read and change them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relay import holds
from relay.errors import ServiceError, StoreError
from relay.quarantine.items import (
    Create,
    Delete,
    Filter,
    Item,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    Items,
    Stored,
)


@dataclass(frozen=True, slots=True)
class Order:
    """A pending order to set an event aside.

    Attributes:
        id: `set-aside:` and a digest of the event's id.
        partition_key: The event's partition key.
        event_id: The event's id.
        ordered_at: ISO 8601 in UTC.
    """

    id: str
    partition_key: str
    event_id: str
    ordered_at: str

    def data(self) -> dict[str, str]:
        """For `--json`, under the names of the item."""
        return {
            "id": self.id,
            "partitionKey": self.partition_key,
            "eventId": self.event_id,
            "orderedAt": self.ordered_at,
        }


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked partition key.

    Attributes:
        partition_key: The key.
        since: When it was parked: ISO 8601 in UTC.
        because: The id of the record that parked it.
    """

    partition_key: str
    since: str
    because: str

    def data(self) -> dict[str, str]:
        """For `--json`, under the names of the item."""
        return {"partitionKey": self.partition_key, "since": self.since, "because": self.because}


class Holdings:
    """Reads and changes the parked keys and the orders."""

    def __init__(self, items: Items) -> None:
        self._items = items

    async def parked(self, partition_key: str | None = None) -> dict[str, Parked]:
        """The parked keys by key, the longest parked first; only `partition_key` if it is given."""
        rows = await self._rows(holds.PARKED_TYPE, partition_key)
        found = [Parked(row["partitionKey"], row["since"], row["because"]) for row in rows]
        return {each.partition_key: each for each in sorted(found, key=lambda each: each.since)}

    async def orders(self, partition_key: str | None = None) -> list[Order]:
        """The pending orders, the oldest first; only those of `partition_key` if it is given."""
        rows = filter(holds.is_pending, await self._rows(holds.ORDER_TYPE, partition_key))
        found = [Order(row["id"], row["partitionKey"], row["eventId"], row["orderedAt"]) for row in rows]
        return sorted(found, key=lambda order: order.ordered_at)

    async def add(self, partition_key: str, event_id: str) -> bool:
        """Write an order to set an event aside; returns False if it exists already.

        One that was carried out is about an earlier version of the event, and is replaced.
        """
        order = holds.order(partition_key, event_id)
        with explaining_store_errors():
            try:
                await self._items.create(order)
            except ItemExists:
                try:
                    found = await self._current(order["id"], partition_key)
                except ItemNotFound:
                    # It was removed in the meantime.
                    return await self.add(partition_key, event_id)
                if holds.is_pending(found.item):
                    return False
                await self._items.batch(partition_key, [Delete(order["id"]), Create(order)])
        return True

    async def withdraw(self, order: Order) -> None:
        """Remove an order, if it still exists."""
        with explaining_store_errors():
            try:
                await self._items.delete(order.id, order.partition_key)
            except ItemNotFound:
                return

    async def unpark(self, partition_key: str) -> bool:
        """Unpark a key that has no record left.

        The relay changes the marker with each record that it stores. The marker is removed only as it was read
        before the records were counted, so a record that is stored in between keeps the key parked.

        Returns:
            False if the key is still parked: it has a record, perhaps a new one.
        """
        with explaining_store_errors():
            try:
                marker = await self._current(holds.PARKED_ID, partition_key)
                # The count is at least as recent as that read.
                if await self._count_records(partition_key):
                    return False
                await self._items.delete(holds.PARKED_ID, partition_key, etag=marker.etag)
            except ItemNotFound:
                return True
            except ItemChanged:
                return False
        return True

    async def _current(self, identifier: str, partition_key: str) -> Stored:
        """An item as the latest write left it. Raises ItemNotFound.

        The replica that answers a read may not have seen the latest writes of other processes. A write decides by
        the latest state, and a later read by the same client is at least as recent.
        """
        await self._items.touch(identifier, partition_key)
        return await self._items.read(identifier, partition_key)

    async def _count_records(self, partition_key: str) -> int:
        return await self._items.count(Filter(partition_key=partition_key))

    async def _rows(self, of_type: str, partition_key: str | None) -> list[Item]:
        with explaining_store_errors():
            return await self._items.of_type(of_type, partition_key)


@contextmanager
def explaining_store_errors() -> Iterator[None]:
    """Raise StoreErrors as ServiceErrors."""
    try:
        yield
    except StoreError as error:
        raise ServiceError(str(error)) from error
