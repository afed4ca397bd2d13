"""The record of a quarantined document: its shape, and how one that is too large for a single item is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay import jsontext
from relay.events import Rejected

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

RECORD_TYPE = "quarantinedEvent"
PART_TYPE = "quarantinedEventPart"

# Where a document has no string for a partition key, its record needs one all the same.
NO_PARTITION_KEY = "(no partition key)"

# A part's JSON text is sent as a JSON string, in which the SDK (4.17.1) escapes all but ASCII: a character takes
# 12 bytes at most (a surrogate pair), and an item, as a request, may have 2 MB.
# https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits
_PART_CHARACTERS = 150_000

# How Cosmos DB refuses what is too large (413), or, with the record's level around the document's own, nested
# more than 128 levels deep (400).
DOES_NOT_FIT = (400, 413)


def record_of(item: Rejected, invocation_id: str) -> dict[str, Any]:
    """The record of one document.

    Its id is a digest of the document's content, `_etag` and `_ts` included: writing it again is harmless,
    while a later version of the document gets a record of its own. `lsn` and `order`, its place within that
    commit, give the order within its partition key where the document has them; `quarantinedAt` (UTC) and
    `position` (the document's place among those it came with) give the order of arrival.
    """
    document = dict(item.document)
    partition_key = document.get("partitionKey")
    digest = hashlib.sha256(jsontext.encode(document, sort_keys=True)).hexdigest()
    return {
        "id": digest[:40],
        "partitionKey": partition_key if isinstance(partition_key, str) else NO_PARTITION_KEY,
        "type": RECORD_TYPE,
        "reason": str(item.reason),
        "detail": item.detail,
        "quarantinedAt": datetime.now(UTC).isoformat(),
        "invocationId": invocation_id,
        "position": item.position,
        **_place(document),
        "document": document,
    }


def _place(document: Mapping[str, Any]) -> dict[str, int]:
    places = {"lsn": document.get("_lsn"), "order": document.get("order")}
    return {name: value for name, value in places.items() if type(value) is int}


async def create(container: ContainerProxy, record: Mapping[str, Any]) -> bool:
    """Store a record, in parts where it does not fit into one item.

    Returns:
        Whether it is new: False where an earlier attempt has written it.

    Raises:
        azure.core.exceptions.AzureError: The container cannot be written.
    """
    from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceExistsError

    try:
        await container.create_item(dict(record))
    except CosmosResourceExistsError:
        return False
    except CosmosHttpResponseError as error:
        if error.status_code not in DOES_NOT_FIT or "document" not in record:
            raise
        return await create(container, await in_parts(container, record))
    return True


async def in_parts(container: ContainerProxy, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the JSON text of a record's document into items beside it; returns the record without the document.

    Raises:
        azure.core.exceptions.AzureError: The container cannot be written.
    """
    text = jsontext.encode(record["document"]).decode()
    parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
    for number, part in enumerate(parts):
        await create(
            container,
            {
                "id": f"{record['id']}-{number}",
                "partitionKey": record["partitionKey"],
                "type": PART_TYPE,
                "recordId": record["id"],
                "part": number,
                "text": part,
            },
        )
    head = {name: value for name, value in record.items() if name != "document"}
    return {**head, "documentParts": len(parts)}
