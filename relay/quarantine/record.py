"""The record of a quarantined document: its shape, how one that is too large is kept, and how it is stored.

A record is written in one batch with the order that keeps its event from being published or quarantined again:
there is no moment at which one of them exists alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from relay.core import holds, jsontext
from relay.core.documents import Numeric, SourceDocument, StoredDocument
from relay.core.errors import StoreError
from relay.core.events import Rejected
from relay.core.place import Place, version_of
from relay.quarantine.items import (
    BatchFailed,
    Create,
    Delete,
    Item,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    ItemTooLarge,
    Operation,
    Stored,
    Writable,
    latest,
)

RECORD_TYPE = "quarantinedEvent"
PART_TYPE = "quarantinedEventPart"

# Version 1 had what the relay knows of a document among the members of the document, and no number.
_VERSION = 2

# If a document has no string for a partition key, its record still needs one.
NO_PARTITION_KEY = "(no partition key)"

# A part's JSON text is stored as a JSON string, in which all but ASCII is escaped: a character takes 12 bytes at
# most (a surrogate pair), and an item of Cosmos DB, as a request, may have 2 MB.
# https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits
_PART_CHARACTERS = 150_000

# Maximum number of times that an order may come, go or be replaced while a batch is written; and how that looks.
_ORDER_TRIES = 5
_ORDER_CHANGED = (ItemExists, ItemNotFound, ItemChanged)


def record_of(item: Rejected, invocation_id: str) -> dict[str, Any]:
    """Return the record of one document.

    `document` is what the outbox stored and nothing else: it is mapped again when it is released. The record's id
    is a digest of that, `_etag` and `_ts` included, and of a row's place: writing it again is harmless, while a
    later version of the document gets its own record. `lsn` and `order`, its place within that commit, or `ulid`
    and `shard`, its place in an SQL feed, give the order within its partition key where they are known;
    `quarantinedAt` (UTC) and `position` (the document's place among those it came with) give the order of arrival.
    """
    source = item.document
    stored, identifier = dict(source.stored), source.fields.get("id")
    partition_key = source.fields.get("partitionKey")
    # JSON has no type for them.
    numeric = [name for name, value in stored.items() if isinstance(value, Numeric)]
    return {
        "id": version_of(_digested(source)),
        "partitionKey": partition_key if isinstance(partition_key, str) else NO_PARTITION_KEY,
        "type": RECORD_TYPE,
        "version": _VERSION,
        "reason": str(item.reason),
        "detail": item.detail,
        "quarantinedAt": datetime.now(UTC).isoformat(),
        "invocationId": invocation_id,
        "position": item.position,
        **({"documentId": identifier} if isinstance(identifier, str) else {}),
        **_place(source),
        **({"numeric": numeric} if numeric else {}),
        "document": stored,
    }


def _digested(source: SourceDocument) -> Mapping[str, Any]:
    """Return the members that tell a document from its other versions; of a row, those of version 1."""
    if source.placed is None:
        return dict(source.stored)
    place = source.place
    if source.mapped is not None:
        return {"row": dict(source.stored), "place": place.item()}
    text = {} if source.body is None else {"_dataText": source.body}
    return {**source.fields, "_shard": place.shard, "_ulid": place.ulid, **text}


def _place(source: SourceDocument) -> dict[str, int | str]:
    if source.placed is not None:
        return source.place.item()
    places = {"lsn": source.lsn, "order": source.fields.get("order")}
    return {name: value for name, value in places.items() if type(value) is int}


class LaterRecord(StoreError):
    """The record was written by a later version of the relay, whose records may mean something else."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A document that quarantine has.

    Attributes:
        stored: The document or the row, as the outbox has it.
        place: The place of a row in its feed; None of a document of Cosmos DB, which has its own.
        fields: The fields that the record itself names.
    """

    stored: StoredDocument
    place: Place | None
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, record: Mapping[str, Any], document: StoredDocument) -> Kept:
        """Return the document of a record; `document` is the stored one, joined from its parts.

        Raises:
            LaterRecord: A later version of the relay has written it.
        """
        version = record.get("version")
        if type(version) is int and version > _VERSION:
            raise LaterRecord(
                f"the record {record['id']!r} was written by a later version of the relay (version {version} of "
                f"records; this one knows {_VERSION}): run the command with that version"
            )
        if version != _VERSION:
            return _kept_before(record, document)
        place = Place(ulid=record["ulid"], shard=record.get("shard")) if "ulid" in record else None
        named = {"id": record.get("documentId"), "order": record.get("order")}
        numeric = {name: Numeric(document[name]) for name in record.get("numeric", ())}
        return cls({**document, **numeric}, place, {**named, "partitionKey": record["partitionKey"]})

    @property
    def source(self) -> SourceDocument:
        """The document with the fields that the record names, whatever the rules of relay.toml are now."""
        return SourceDocument(self.stored, self.fields, self.place)


def _kept_before(record: Mapping[str, Any], document: StoredDocument) -> Kept:
    """Return the document of a record of version 1, which has the relay's own members among the document's."""
    fields = {"id": document.get("id"), "order": document.get("order"), "partitionKey": record["partitionKey"]}
    original, text = document.get("_original"), document.get("_dataText")
    is_mapped = isinstance(original, dict) and isinstance(document.get("_mapped"), dict)
    ulid, shard = document.get("_ulid"), document.get("_shard")
    # Cosmos DB has given every document of its own a time.
    if isinstance(ulid, str) and type(shard) is int and "_ts" not in document:
        place = Place(ulid=ulid, shard=shard)
        if is_mapped and isinstance(original, dict) and "_ulid" not in original:
            return Kept(_with_text(original, document.get("data"), text), place, fields)
        return Kept(_row_before(document if original is None else original, text), place, fields)
    # The relay copied these from the document that it mapped; no user can choose them.
    known = ("_ts", "_etag", "_rid", "_lsn")
    if (
        is_mapped
        and isinstance(original, dict)
        and all(original.get(each) == document.get(each) for each in known)
    ):
        return Kept(original, None, fields)
    return Kept(document, None, fields)


def _row_before(document: StoredDocument, text: object) -> StoredDocument:
    """Return the row that a document of version 1 was made of, in the columns that it was made of."""
    columns = {"id": "id", "partitionKey": "partition_key", "type": "type", "data": "data"}
    columns |= {"sequence": "sequence", "traceparent": "traceparent"}
    row = {column: document[name] for name, column in columns.items() if name in document}
    return row if text is None else {**row, "data": text}


def _with_text(row: StoredDocument, data: object, text: object) -> StoredDocument:
    """Return a row of version 1, whose JSON text was replaced by its value, with the text of its data again."""
    if text is None:
        return row
    return {name: text if isinstance(value, dict) and value == data else value for name, value in row.items()}


async def create(items: Writable, record: Mapping[str, Any]) -> bool:
    """Store a record, in parts if it does not fit into one item. Raises StoreError.

    Returns False if an earlier attempt has written it.
    """
    try:
        await items.create(record)
    except ItemExists:
        return False
    except ItemTooLarge:
        if "document" not in record:
            raise
        return await create(items, await in_parts(items, record))
    return True


async def in_parts(items: Writable, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the JSON text of a record's document into items of its own; returns the record without it.

    A part that an earlier attempt has written is not sent again, so that attempts of limited time get further.
    """
    text = jsontext.encode(record["document"]).decode()
    parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
    for number, part in enumerate(parts):
        identifier = part_id(record["id"], number)
        try:
            await items.touch(identifier, record["partitionKey"])
        except ItemNotFound:
            await create(
                items,
                {
                    "id": identifier,
                    "partitionKey": record["partitionKey"],
                    "type": PART_TYPE,
                    "recordId": record["id"],
                    "part": number,
                    "text": part,
                },
            )
    head = {name: value for name, value in record.items() if name != "document"}
    return {**head, "documentParts": len(parts)}


def part_id(record_id: str, number: int) -> str:
    return f"{record_id}-{number}"


async def create_held(items: Writable, record: Mapping[str, Any], partition_key: str, item: Rejected) -> bool:
    """Create the record of a document with a partition key, and hold its event.

    Returns False as well if it was stored before and its record has been released or discarded since.
    """
    try:
        return await hold(items, partition_key, item, Create(record))
    except BatchFailed as failed:
        if isinstance(failed.error, ItemExists):
            await hold(items, partition_key, item)
            return False
        if isinstance(failed.error, ItemTooLarge) and "document" in record:
            return await create_held(items, await in_parts(items, record), partition_key, item)
        raise


async def hold(
    items: Writable, partition_key: str, item: Rejected, *first: Operation, passed_at: float | None = None
) -> bool:
    """Put the order that holds a document's event in the place of the one that may be there.

    `first` is done in the same batch before. `passed_at` is when it was noticed that the checkpoint has passed the
    event, in seconds since 1970.

    Returns:
        False if nothing was done, because this version of the event is held already.

    Raises:
        BatchFailed: `first` was refused.
        StoreError: The store cannot be written.
    """
    order = holds.fulfilled_order_item(partition_key, item.id, item.document.place, passed_at)
    removal: list[Operation] = []
    for _ in range(_ORDER_TRIES):
        try:
            await items.batch(partition_key, [*first, *removal, Create(order)])
        except BatchFailed as failed:
            if failed.index is None or failed.index < len(first) or not isinstance(failed.error, _ORDER_CHANGED):
                raise
            found = await _order(items, order["id"], partition_key)
            if found is not None and _is_same(found.item, order):
                return False
            removal = [] if found is None else [Delete(order["id"], found.etag)]
        else:
            return True
    raise StoreError(f"the order {order['id']!r} is being changed by others")


async def is_held(items: Writable, partition_key: str, item: Rejected) -> bool:
    """Return True if an order holds this version of a document's event. Raises StoreError."""
    order = holds.fulfilled_order_item(partition_key, item.id, item.document.place)
    found = await _order(items, order["id"], partition_key)
    return found is not None and _is_same(found.item, order)


async def _order(items: Writable, identifier: str, partition_key: str) -> Stored | None:
    try:
        return await latest(items, identifier, partition_key)
    except ItemNotFound:
        return None


def _is_same(found: Item, order: Item) -> bool:
    """Return True if an order was carried out for the same version of its event."""
    return not holds.is_pending(found) and found.get("place") == order["place"]
