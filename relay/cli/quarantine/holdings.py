"""Parked partition keys and orders to set events aside, as the commands read and change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.cli.containers import explaining_service_errors
from relay.cosmos import holds
from relay.cosmos.quarantine_record import RECORD_TYPE

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy


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
        """For `--json`, under the names in the container."""
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
        """For `--json`, under the names in the container."""
        return {"partitionKey": self.partition_key, "since": self.since, "because": self.because}


class Holdings:
    """Reads and changes the parked keys and the orders."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def parked(self, partition_key: str | None = None) -> dict[str, Parked]:
        """The parked keys by key, the longest parked first; only `partition_key` if it is given."""
        rows = await self._rows(holds.PARKED_TYPE, partition_key)
        found = [Parked(row["partitionKey"], row["since"], row["because"]) for row in rows]
        return {each.partition_key: each for each in sorted(found, key=lambda each: each.since)}

    async def orders(self, partition_key: str | None = None) -> list[Order]:
        """The pending orders, the oldest first; only those of `partition_key` if it is given."""
        rows = await self._rows(holds.ORDER_TYPE, partition_key)
        found = [Order(row["id"], row["partitionKey"], row["eventId"], row["orderedAt"]) for row in rows]
        return sorted(found, key=lambda order: order.ordered_at)

    async def add(self, partition_key: str, event_id: str) -> bool:
        """Write an order to set an event aside; returns False if it exists already."""
        from azure.cosmos.exceptions import CosmosResourceExistsError

        with explaining_service_errors(self._container.id):
            try:
                await self._container.create_item(holds.order(partition_key, event_id))
            except CosmosResourceExistsError:
                return False
        return True

    async def withdraw(self, order: Order) -> None:
        """Remove an order, if it still exists."""
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        with explaining_service_errors(self._container.id):
            try:
                await self._container.delete_item(order.id, partition_key=order.partition_key)
            except CosmosResourceNotFoundError:
                return

    async def unpark(self, partition_key: str) -> bool:
        """Unpark a key that has no record left.

        The relay changes the marker with each record that it stores. The marker is removed only as it was read
        before the records were counted, so a record that is stored in between keeps the key parked.

        Returns:
            False if the key is still parked: it has a record, perhaps a new one.
        """
        from azure.core import MatchConditions
        from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosResourceNotFoundError

        with explaining_service_errors(self._container.id):
            try:
                marker = await self._container.read_item(holds.PARKED_ID, partition_key=partition_key)
                # The session token of that read makes the count at least as recent.
                if await self._count_records(partition_key):
                    return False
                await self._container.delete_item(
                    holds.PARKED_ID,
                    partition_key=partition_key,
                    etag=marker["_etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
            except CosmosResourceNotFoundError:
                return True
            except CosmosAccessConditionFailedError:
                return False
        return True

    async def _count_records(self, partition_key: str) -> int:
        counts = self._container.query_items(
            "SELECT VALUE COUNT(1) FROM c WHERE c.type = @type",
            parameters=[{"name": "@type", "value": RECORD_TYPE}],
            partition_key=partition_key,
        )
        return sum([int(str(count)) async for count in counts])

    async def _rows(self, of_type: str, partition_key: str | None) -> list[dict[str, Any]]:
        options: dict[str, Any] = {} if partition_key is None else {"partition_key": partition_key}
        with explaining_service_errors(self._container.id):
            rows = self._container.query_items(
                "SELECT * FROM c WHERE c.type = @type",
                parameters=[{"name": "@type", "value": of_type}],
                **options,
            )
            return [row async for row in rows]
