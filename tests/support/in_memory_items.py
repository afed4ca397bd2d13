"""A store of items in memory, with the limits of Cosmos DB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from relay.core import holds
from relay.core.errors import StoreError
from relay.core.holds import Holds
from relay.quarantine.items import (
    BATCH_OPERATIONS,
    BatchFailed,
    Create,
    Delete,
    Filter,
    Item,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    ItemTooLarge,
    Operation,
    RecordSummary,
    Stored,
)
from relay.quarantine.record import RECORD_TYPE

# https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits
_BYTES = 2 * 1024 * 1024
_LEVELS = 128

_Key = tuple[str, str]


class InMemoryItems:
    """A store; it passes the contract suite in `tests/contracts/test_items.py`.

    Attributes:
        answers: What is raised instead of the next requests, one by one; None lets a request through.
        lags: Whether queries are answered by a replica that has seen nothing.
        batches: The number of operations of each batch.
        closed: Whether the connection is closed.
    """

    def __init__(self) -> None:
        self._stored: dict[_Key, Stored] = {}
        self._etags = count(1)
        self.answers: list[Exception | None] = []
        self.lags = False
        self.batches: list[int] = []
        self.closed = False

    @property
    def stored(self) -> list[dict[str, Any]]:
        """All items, as they were created."""
        return [dict(stored.item) for stored in self._stored.values()]

    def put(self, item: Item) -> None:
        """Create an item, whatever the next answers are."""
        self._create(self._stored, item)

    def take(self, identifier: str, partition_key: str) -> None:
        """Delete an item, whatever the next answers are."""
        del self._stored[partition_key, identifier]

    async def create(self, item: Item, /) -> None:
        self._answer()
        self._create(self._stored, item)

    async def read(self, identifier: str, partition_key: str, /) -> Stored:
        self._answer()
        return _found(self._stored, partition_key, identifier)

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        self._answer()
        _delete(self._stored, partition_key, Delete(identifier, etag))

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        self._answer()
        self._touch(self._stored, partition_key, identifier)

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        self.batches.append(len(operations))
        self._answer()
        created = [operation.item for operation in operations if isinstance(operation, Create)]
        if len(operations) > BATCH_OPERATIONS or sum(map(_size, created)) > _BYTES:
            raise BatchFailed(None, ItemTooLarge("a batch has 100 operations and 2 MB at most"))
        changed = dict(self._stored)
        for index, operation in enumerate(operations):
            try:
                if isinstance(operation, Create):
                    assert operation.item["partitionKey"] == partition_key
                    self._create(changed, operation.item)
                elif isinstance(operation, Delete):
                    _delete(changed, partition_key, operation)
                else:
                    self._touch(changed, partition_key, operation.id)
            except StoreError as error:
                raise BatchFailed(index, error) from error
        self._stored = changed

    async def holds(self) -> Holds:
        queried = self._query()
        etags = {key: stored.etag for key, stored in self._stored.items()}
        return holds.holds_from_items(
            [{**item, "_etag": etags[item["partitionKey"], item["id"]]} for item in queried]
        )

    async def count(self, chosen: Filter, /) -> int:
        return len(await self.summaries(chosen))

    async def summaries(self, chosen: Filter, /, limit: int | None = None) -> list[RecordSummary]:
        found = [
            summary
            for summary in map(_summary, filter(_is_record, self._query()))
            if chosen.reason in (None, summary.reason)
            and chosen.partition_key in (None, summary.partition_key)
            and (chosen.since is None or summary.quarantined_at >= chosen.since)
        ]
        return sorted(found, key=lambda summary: summary.quarantined_at)[:limit]

    async def summaries_by_id(self, beginning: str, /) -> list[RecordSummary]:
        return [_summary(item) for item in self._query() if _is_record(item) and item["id"].startswith(beginning)]

    async def of_type(
        self, item_type: str, /, partition_key: str | None = None, *, since: str | None = None
    ) -> list[Item]:
        return [
            item
            for item in self._query()
            if item["type"] == item_type
            and partition_key in (None, item["partitionKey"])
            and (since is None or item.get("at", "") >= since)
        ]

    async def close(self) -> None:
        self.closed = True

    def _query(self) -> list[dict[str, Any]]:
        self._answer()
        return [] if self.lags else self.stored

    def _answer(self) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer

    def _create(self, items: dict[_Key, Stored], item: Item) -> None:
        key = item["partitionKey"], item["id"]
        if key in items:
            raise ItemExists("it is there already")
        if _size(item) > _BYTES or _levels(item) > _LEVELS:
            raise ItemTooLarge("an item has 2 MB and 128 levels at most")
        items[key] = self._version(json.loads(json.dumps(dict(item))))

    def _touch(self, items: dict[_Key, Stored], partition_key: str, identifier: str) -> None:
        found = _found(items, partition_key, identifier)
        touched = {**found.item, "touchedAt": datetime.now(UTC).isoformat()}
        items[partition_key, identifier] = self._version(touched)

    def _version(self, item: Item) -> Stored:
        return Stored(item, str(next(self._etags)))


def _found(items: dict[_Key, Stored], partition_key: str, identifier: str) -> Stored:
    try:
        return items[partition_key, identifier]
    except KeyError:
        raise ItemNotFound("it is not there") from None


def _delete(items: dict[_Key, Stored], partition_key: str, operation: Delete) -> None:
    found = _found(items, partition_key, operation.id)
    if operation.etag not in (None, found.etag):
        raise ItemChanged("it has another ETag")
    del items[partition_key, operation.id]


def _is_record(item: Item) -> bool:
    return bool(item["type"] == RECORD_TYPE)


def _summary(item: Item) -> RecordSummary:
    row = dict(item)
    if "order" in row:
        row["place"] = row["order"]
    if isinstance(document := row.get("document"), dict) and "id" in document:
        row["storedId"] = document["id"]
    return RecordSummary.of(row)


def _size(item: Item) -> int:
    return len(json.dumps(dict(item)))


def _levels(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return 1 + max(map(_levels, value), default=0)
