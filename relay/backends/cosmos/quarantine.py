"""The quarantine container as a store of items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions

from relay.backends.cosmos.containers import Containers, explaining, parameters
from relay.core import holds
from relay.core.errors import StoreError
from relay.core.holds import Holds
from relay.quarantine import items
from relay.quarantine.record import RECORD_TYPE

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_SUMMARY = (
    "SELECT c.id, c.partitionKey, c.reason, c.detail, c.quarantinedAt, c.position, c.invocationId, "
    'c.documentParts, c.documentId, c.document.id AS storedId, c.lsn, c["order"] AS place FROM c'
)

_PAGE_ITEMS = 1000
"""The most of a page, which the service ends at 4 MB. It has 100 where the client asks for no number."""

# The meaning of a status for the items. The service refuses items that are too large with 413, and those nested
# more than 128 levels deep with 400.
_REFUSALS: dict[int, type[StoreError]] = {
    400: items.ItemTooLarge,
    404: items.ItemNotFound,
    409: items.ItemExists,
    412: items.ItemChanged,
    413: items.ItemTooLarge,
}


class CosmosItems:
    """A store in the quarantine container; `quarantine.items.Items` says what each method does."""

    def __init__(self, containers: Containers) -> None:
        """Create the store; `containers` is the connection to use, and is closed with the store."""
        self._containers = containers

    async def create(self, item: items.Item, /) -> None:
        async with self._container(400, 409, 413) as container:
            await container.create_item(dict(item))

    async def read(self, identifier: str, partition_key: str, /) -> items.Stored:
        async with self._container(404) as container:
            item = await container.read_item(identifier, partition_key=partition_key)
        return items.Stored(item, item["_etag"])

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        condition: dict[str, Any] = {}
        if etag is not None:
            condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        async with self._container(404, 412) as container:
            await container.delete_item(identifier, partition_key=partition_key, **condition)

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        async with self._container(404) as container:
            await container.patch_item(identifier, partition_key, _touching())

    async def batch(self, partition_key: str, operations: Sequence[items.Operation], /) -> None:
        from azure.cosmos.exceptions import CosmosBatchOperationError

        try:
            async with self._container(400, 404, 409, 412, 413) as container:
                await container.execute_item_batch(list(map(_in_batch, operations)), partition_key=partition_key)
        except StoreError as error:
            cause = error.__cause__
            index = cause.error_index if isinstance(cause, CosmosBatchOperationError) else None
            # A 404 or 412 that names no operation is not about one.
            unnamed = index is None and isinstance(error, items.ItemNotFound | items.ItemChanged)
            if type(error) is StoreError or unnamed:
                raise
            raise items.BatchFailed(index, error) from cause

    async def holds(self) -> Holds:
        query = (
            "SELECT c.type, c.partitionKey, c.eventId, c.carriedOut, c.place, c.passedAt, c._etag FROM c "
            "WHERE c.type IN (@parked, @order)"
        )
        return holds.holds_from_items(
            await self._rows(query, {"parked": holds.PARKED_TYPE, "order": holds.ORDER_TYPE})
        )

    async def count(self, chosen: items.Filter, /) -> int:
        where, values = clause(chosen)
        # The session token of an earlier read makes the count at least as recent.
        counts = await self._rows(f"SELECT VALUE COUNT(1) FROM c{where}", values, chosen.partition_key)
        return sum(map(int, counts))

    async def summaries(self, chosen: items.Filter, /, limit: int | None = None) -> list[items.RecordSummary]:
        where, values = clause(chosen)
        # Of one key, one physical partition is asked instead of all.
        rows = await self._rows(f"{_SUMMARY}{where} ORDER BY c.quarantinedAt", values, chosen.partition_key, limit)
        return [items.RecordSummary.of(row) for row in rows]

    async def summaries_by_id(self, beginning: str, /) -> list[items.RecordSummary]:
        where, values = clause(items.Filter())
        query = f"{_SUMMARY}{where} AND STARTSWITH(c.id, @id)"
        return [items.RecordSummary.of(row) for row in await self._rows(query, values | {"id": beginning})]

    async def of_type(
        self, item_type: str, /, partition_key: str | None = None, *, since: str | None = None
    ) -> list[items.Item]:
        query, values = "SELECT * FROM c WHERE c.type = @type", {"type": item_type}
        if since is not None:
            query, values = f"{query} AND c.at >= @since", {**values, "since": since}
        return await self._rows(query, values, partition_key)

    async def close(self) -> None:
        await self._containers.close()

    async def _rows(
        self,
        query: str,
        values: Mapping[str, str],
        partition_key: str | None = None,
        limit: int | None = None,
    ) -> list[Any]:
        options: dict[str, Any] = {} if partition_key is None else {"partition_key": partition_key}
        options["max_item_count"] = _PAGE_ITEMS if limit is None else min(limit, _PAGE_ITEMS)
        found: list[Any] = []
        with self._explaining():
            async with self._containers.call() as call:
                container = call.container(self._containers.quarantine_name)
                # Each page has the time of a call: a quarantine may have any number of them.
                options["response_hook"] = lambda *_: call.answered()
                async for row in container.query_items(query, parameters=parameters(**values), **options):
                    found.append(row)
                    if len(found) == limit:
                        break
        return found

    @asynccontextmanager
    async def _container(self, *statuses: int) -> AsyncIterator[ContainerProxy]:
        """The container for one call; errors with one of the statuses are raised as errors of the items."""
        with self._explaining():
            async with self._containers.call() as call:
                with self._explaining(*statuses):
                    yield call.container(self._containers.quarantine_name)

    def _explaining(self, *statuses: int) -> AbstractContextManager[None]:
        """Raise errors of the SDK as StoreErrors; those with one of the statuses as errors of the items."""

        def kind(error: Exception) -> type[StoreError]:
            status = getattr(error, "status_code", None)
            return _REFUSALS[status] if status in statuses else StoreError

        return explaining(self._containers.quarantine_name, kind, "that it has the partition key /partitionKey")


def clause(chosen: items.Filter) -> tuple[str, dict[str, str]]:
    """Return the WHERE clause for records, and the values of its parameters."""
    equal = {"type": RECORD_TYPE, "reason": chosen.reason, "partitionKey": chosen.partition_key}
    values = {name: value for name, value in equal.items() if value is not None}
    conditions = [f"c.{name} = @{name}" for name in values]
    if chosen.since is not None:
        conditions.append("c.quarantinedAt >= @since")
        values["since"] = chosen.since
    return " WHERE " + " AND ".join(conditions), values


def _in_batch(operation: items.Operation) -> tuple[str, tuple[Any, ...], dict[str, str]]:
    if isinstance(operation, items.Create):
        return "create", (dict(operation.item),), {}
    if isinstance(operation, items.Delete):
        condition = {} if operation.etag is None else {"if_match_etag": operation.etag}
        return "delete", (operation.id,), condition
    return "patch", (operation.id, _touching()), {}


def _touching() -> list[dict[str, Any]]:
    return [{"op": "set", "path": "/touchedAt", "value": datetime.now(UTC).isoformat()}]
