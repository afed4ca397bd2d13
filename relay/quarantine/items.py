"""The port of quarantine's store: a container of Cosmos DB, or a table of an SQL database.

An item is a JSON object with an `id`, a `partitionKey` and a `type`. Its id is unique within its partition key.
Ids and keys are compared character by character. The types are `RECORD_TYPE` and `PART_TYPE` in
`relay/quarantine/record.py`, `PARKED_TYPE` and `ORDER_TYPE` in `relay/core/holds.py`, and `OUTCOME_TYPE` in
`packages/operator/src/outbox_relay/operator/outcomes.py`.

Every store passes the contract suite in `tests/contracts/test_items.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from relay.core.errors import StoreError
from relay.core.holds import Holds
from relay.core.place import Place, PlaceInFeed

Item = Mapping[str, Any]

# A batch has at most this many operations, and its items this many bytes of JSON in ASCII: half of what Cosmos DB
# takes, as its answer, which repeats the items, is limited too. A single record may be larger.
# https://learn.microsoft.com/azure/cosmos-db/transactional-batch#limitations
BATCH_OPERATIONS = 100
BATCH_BYTES = 1_000_000


class ItemExists(StoreError):
    """Within the partition key there is an item with this id already."""


class ItemNotFound(StoreError):
    """Within the partition key there is no item with this id."""


class ItemChanged(StoreError):
    """The item has been changed since its ETag was read."""


class ItemTooLarge(StoreError):
    """The items do not fit: too many bytes, or nested too deep. Fewer at a time, or an item in parts, may fit."""


class BatchFailed(StoreError):
    """An operation of a batch was refused, so none has been carried out.

    Attributes:
        index: The place of the operation in the batch; None if the store names none.
        error: `ItemExists`, `ItemNotFound`, `ItemChanged` or `ItemTooLarge`.
    """

    def __init__(self, index: int | None, error: StoreError) -> None:
        super().__init__(str(error))
        self.index = index
        self.error = error


@dataclass(frozen=True, slots=True)
class Stored:
    """An item as it is stored, perhaps with more members than it was created with.

    Attributes:
        item: The item.
        etag: Its version: every change gives it another one, and no two items with this id have had the same.
    """

    item: Item
    etag: str


@dataclass(frozen=True, slots=True)
class Create:
    """Creates an item; fails with `ItemExists` or `ItemTooLarge`."""

    item: Item


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes the item with this id; fails with `ItemNotFound`, or with `ItemChanged` if it has another ETag."""

    id: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Touch:
    """Sets the member `touchedAt` of the item with this id to the current time; fails with `ItemNotFound`."""

    id: str


Operation = Create | Delete | Touch


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """A quarantine record without its document.

    Attributes:
        id: The record's id, not the document's.
        partition_key: The record's partition key: the document's, if that is a string.
        quarantined_at: ISO 8601 in UTC, to the microsecond.
        position: Its place among the records of one invocation.
        document_id: The document's id; None if that is no string. Cosmos DB has none of a document in parts.
        parts: The number of items that hold the document; 0 if the record itself holds it.
        committed: The document's place in its feed: its `_lsn`, and its `order` within the commit or 0; or its
            ULID, and 0. None if it is not known.
    """

    id: str
    partition_key: str
    reason: str
    detail: str
    quarantined_at: str
    position: int
    invocation_id: str
    document_id: str | None
    parts: int
    committed: PlaceInFeed | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> RecordSummary:
        """Return a summary from a row with the names of the record, and with `place`.

        A record of an earlier version has no `documentId`: `storedId` is then that of the document.
        """
        document_id = row.get("documentId", row.get("storedId"))
        return cls(
            id=row["id"],
            partition_key=row["partitionKey"],
            reason=row["reason"],
            detail=row["detail"],
            quarantined_at=row["quarantinedAt"],
            position=row["position"],
            invocation_id=row["invocationId"],
            document_id=document_id if isinstance(document_id, str) else None,
            parts=row.get("documentParts", 0),
            committed=Place(lsn=row.get("lsn"), order=row.get("place"), ulid=row.get("ulid")).in_feed,
        )

    def data(self) -> dict[str, Any]:
        """Return the summary for `--json`, under the names of the record."""
        return {
            "id": self.id,
            "partitionKey": self.partition_key,
            "reason": self.reason,
            "detail": self.detail,
            "quarantinedAt": self.quarantined_at,
            "position": self.position,
            "invocationId": self.invocation_id,
            "documentId": self.document_id,
            "documentParts": self.parts,
        }


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records: all, or those with a reason, a key, and a `quarantinedAt` that is not before `since`.

    `since` is in ISO 8601 as records have it.
    """

    reason: str | None = None
    partition_key: str | None = None
    since: str | None = None


def in_order(summaries: Iterable[RecordSummary]) -> list[RecordSummary]:
    """Return records in order of arrival, those of one partition key in the order of their documents' commits.

    Several hosts may quarantine the documents of a key in any order; their places in the feed do not depend on
    that.
    """
    arrived = sorted(summaries, key=lambda summary: (summary.quarantined_at, summary.position))
    keys: dict[str, list[RecordSummary]] = {}
    for summary in arrived:
        keys.setdefault(summary.partition_key, []).append(summary)
    for of_key in keys.values():
        if all(summary.committed is not None for summary in of_key):
            of_key.sort(key=attrgetter("committed"))
        of_key.reverse()
    return [keys[summary.partition_key].pop() for summary in arrived]


class Writable(Protocol):
    """The part of a store that records are written with. Every method raises StoreError if it cannot be reached.

    A method that writes never sees an old state. The others may be answered by a replica that has not seen the
    latest changes.
    """

    async def create(self, item: Item, /) -> None:
        """Create an item. Raises ItemExists or ItemTooLarge."""

    async def read(self, identifier: str, partition_key: str, /) -> Stored:
        """Read an item. Raises ItemNotFound."""

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        """Set the member `touchedAt` to the current time, which changes the ETag. Raises ItemNotFound."""

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        """Carry out operations on one partition key, in order: all, or none. Raises BatchFailed."""


class Items(Writable, Protocol):
    """A store of items.

    Its `count`, of one partition key, is at least as recent as an earlier `read` of that key from the same object.
    """

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        """Delete an item; with an ETag, only if the item still has it. Raises ItemNotFound or ItemChanged."""

    async def holds(self) -> Holds:
        """Return every parked key and every order to set an event aside."""

    async def count(self, chosen: Filter, /) -> int:
        """Return the number of records."""

    async def summaries(self, chosen: Filter, /, limit: int | None = None) -> list[RecordSummary]:
        """Return records in the order of `quarantinedAt`, the oldest first, at most `limit`."""

    async def summaries_by_id(self, beginning: str, /) -> list[RecordSummary]:
        """Return the records whose ids begin so, in any order."""

    async def of_type(
        self, item_type: str, /, partition_key: str | None = None, *, since: str | None = None
    ) -> list[Item]:
        """Return items of a type, in any order: those of `partition_key`, and `at` or after `since`, if given."""

    async def close(self) -> None:
        """Close the connection, if there is one."""


async def latest(items: Writable, identifier: str, partition_key: str) -> Stored:
    """Return an item as the latest write left it. Raises ItemNotFound.

    The replica that answers a read may not have seen the latest writes of other processes. A write decides by the
    latest state, and a later read by the same client is at least as recent.
    """
    await items.touch(identifier, partition_key)
    return await items.read(identifier, partition_key)
