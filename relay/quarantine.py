"""The quarantine container: documents that can never become messages, kept with the reason why."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from relay import jsontext, telemetry
from relay.connections import cosmos_client
from relay.errors import QuarantineError, first_line
from relay.events import Document, Reason
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, CosmosClient

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
_DOES_NOT_FIT = (400, 413)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A document, and why it is set aside."""

    document: Document
    reason: Reason
    detail: str


class Quarantine:
    """Writes quarantine records. The connection is made when the first one has to be written."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._client: CosmosClient | None = None
        self._container: ContainerProxy | None = None

    async def store(self, items: Sequence[Quarantined], invocation_id: str) -> None:
        """Store every item; one that is there already from an earlier attempt is left as it is.

        Raises:
            QuarantineError: The container could not be written. Nothing is lost: the invocation fails, and its
                next attempt stores the rest.
        """
        if not items:
            return
        try:
            container = await self._open()
            for position, item in enumerate(items):
                if await _create(container, record_of(item, invocation_id, position)):
                    telemetry.quarantined(item.reason)
        except (AzureError, OSError) as error:
            raise QuarantineError(
                f"{len(items)} document(s) must be quarantined, but the container "
                f"'{self._settings.cosmos_quarantine_container}' could not be written: {first_line(error)} "
                "Check that it exists with the partition key /partitionKey, and that the app may write to it."
            ) from error

    async def _open(self) -> ContainerProxy:
        async with self._opening:
            if self._container is None:
                client = cosmos_client(self._settings.cosmos)
                try:
                    await client.__aenter__()
                except BaseException:
                    await client.close()
                    raise
                database = client.get_database_client(self._settings.cosmos_database)
                self._client = client
                self._container = database.get_container_client(self._settings.cosmos_quarantine_container)
            return self._container

    async def close(self) -> None:
        """Close the connection, if there is one."""
        client, self._client, self._container = self._client, None, None
        if client is not None:
            await client.close()


def record_of(item: Quarantined, invocation_id: str, position: int) -> dict[str, Any]:
    """The record of one document.

    Its id is a digest of the document's content, `_etag` and `_ts` included: writing it again is harmless,
    while a later version of the document gets a record of its own. `quarantinedAt` (UTC) and `position` (the
    document's place among those quarantined together) give the order of arrival.
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
        "position": position,
        "document": document,
    }


async def _create(container: ContainerProxy, record: Mapping[str, Any]) -> bool:
    """Returns whether it is new: False where an earlier attempt has written it."""
    from azure.cosmos.exceptions import (
        CosmosHttpResponseError,
        CosmosResourceExistsError,
    )

    try:
        await container.create_item(dict(record))
    except CosmosResourceExistsError:
        return False
    except CosmosHttpResponseError as error:
        if error.status_code not in _DOES_NOT_FIT or "document" not in record:
            raise
        return await _create_in_parts(container, record)
    return True


async def _create_in_parts(container: ContainerProxy, record: Mapping[str, Any]) -> bool:
    """A document near a limit does not fit into a record: its JSON text goes into items beside it."""
    text = jsontext.encode(record["document"]).decode()
    parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
    for number, part in enumerate(parts):
        await _create(
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
    return await _create(container, {**head, "documentParts": len(parts)})
