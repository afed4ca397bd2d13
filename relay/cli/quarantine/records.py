"""The quarantine container as operators see it: heads of records in order of arrival, documents on request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from relay.cli.containers import open_container, telling_service_errors
from relay.cli.quarantine.holdings import Holdings
from relay.cosmos.quarantine_record import RECORD_TYPE
from relay.errors import UsageError
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

# Ids are 40 hexadecimal digits; fewer will do where no other begins with them.
SHORT_ID = 12

_HEAD = (
    "SELECT c.id, c.partitionKey, c.reason, c.detail, c.quarantinedAt, c.position, c.invocationId, "
    'c.documentParts, c.document.id AS documentId, c.lsn, c["order"] AS place FROM c'
)


@dataclass(frozen=True, slots=True)
class Head:
    """A quarantine record without its document.

    Attributes:
        id: The record's id, not the document's.
        partition_key: The record's partition key: the document's, where that is a string.
        reason: The code under which it was quarantined.
        detail: What was found, in words.
        quarantined_at: ISO 8601 in UTC, to the microsecond.
        position: Its place among those quarantined by one invocation.
        invocation_id: Which invocation quarantined it.
        document_id: The document's id; None where it has no such string, or where the document is in parts.
        parts: Into how many items beside the record the document was cut; 0 where it is in the record.
        committed: Where the document stood in the change feed: its `_lsn`, and its `order` within the commit or 0;
            None where that is not known.
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
    committed: tuple[int, int] | None = None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Head:
        """From a row of the query above."""
        document_id = row.get("documentId")
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
            committed=(row["lsn"], row.get("place", 0)) if "lsn" in row else None,
        )

    def data(self) -> dict[str, Any]:
        """For `--json`, under the names that the container uses."""
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
    """Which records: all of them, or those with a reason, or a partition key, or both."""

    reason: str | None = None
    partition_key: str | None = None

    def clause(self) -> tuple[str, list[dict[str, Any]]]:
        """The WHERE clause and its parameters."""
        conditions = ["c.type = @type"]
        parameters: list[dict[str, Any]] = [{"name": "@type", "value": RECORD_TYPE}]
        if self.reason is not None:
            conditions.append("c.reason = @reason")
            parameters.append({"name": "@reason", "value": self.reason})
        if self.partition_key is not None:
            conditions.append("c.partitionKey = @partitionKey")
            parameters.append({"name": "@partitionKey", "value": self.partition_key})
        return " WHERE " + " AND ".join(conditions), parameters


class Records:
    """Reads and removes quarantine records.

    Attributes:
        holdings: What else the container has: parked keys, and orders to set events aside.
    """

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container
        self.holdings = Holdings(container)

    async def count(self, chosen: Filter) -> int:
        """How many records there are."""
        where, parameters = chosen.clause()
        with telling_service_errors(self._container.id):
            counts = self._container.query_items("SELECT VALUE COUNT(1) FROM c" + where, parameters=parameters)
            return sum([int(str(count)) async for count in counts])

    async def heads(self, chosen: Filter, limit: int | None = None) -> list[Head]:
        """Records in order of arrival, the oldest first; at most `limit`. Within a key, in commit order."""
        where, parameters = chosen.clause()
        found: list[Head] = []
        with telling_service_errors(self._container.id):
            rows = self._container.query_items(f"{_HEAD}{where} ORDER BY c.quarantinedAt", parameters=parameters)
            async for row in rows:
                if limit is not None and len(found) >= limit:
                    break
                found.append(Head.of(row))
        return in_order(found)

    async def named(self, ids: list[str]) -> tuple[list[Head], list[str]]:
        """The records of these ids, or of beginnings of ids, in order of arrival; and the ids that are not there.

        Raises:
            UsageError: More than one record begins so.
        """
        found: dict[str, Head] = {}
        missing = []
        for beginning in ids:
            where, parameters = Filter().clause()
            parameters.append({"name": "@id", "value": beginning})
            query = f"{_HEAD}{where} AND STARTSWITH(c.id, @id)"
            with telling_service_errors(self._container.id):
                heads = [Head.of(row) async for row in self._container.query_items(query, parameters=parameters)]
            if len(heads) > 1:
                raise UsageError(f"{len(heads)} records begin with {beginning!r}: give more of the id")
            if not heads:
                missing.append(beginning)
            found |= {head.id: head for head in heads}
        return in_order(found.values()), missing

    async def document(self, head: Head) -> dict[str, Any] | None:
        """The quarantined document, put together from its parts if need be; None where the record is gone."""
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        with telling_service_errors(self._container.id):
            try:
                if head.parts == 0:
                    record = await self._container.read_item(head.id, partition_key=head.partition_key)
                    document: dict[str, Any] = record["document"]
                    return document
                texts = [
                    str((await self._container.read_item(part, partition_key=head.partition_key))["text"])
                    for part in _part_ids(head)
                ]
            except CosmosResourceNotFoundError:
                return None
        whole: dict[str, Any] = json.loads("".join(texts))
        return whole

    async def remove(self, head: Head) -> None:
        """Remove a record and its parts, all at once; one that is gone already stays gone."""
        from azure.cosmos.exceptions import CosmosBatchOperationError

        ids = [head.id, *_part_ids(head)]
        with telling_service_errors(self._container.id):
            try:
                await self._container.execute_item_batch(
                    [("delete", (item,)) for item in ids], partition_key=head.partition_key
                )
            except CosmosBatchOperationError as error:
                if error.status_code != 404:
                    raise
                # Part of it is gone, so somebody removed it at the same time, or part by part.
                for item in ids:
                    await self._remove_item(item, head.partition_key)

    async def _remove_item(self, item: str, partition_key: str) -> None:
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        try:
            await self._container.delete_item(item, partition_key=partition_key)
        except CosmosResourceNotFoundError:
            return


@asynccontextmanager
async def open_records(settings: Settings) -> AsyncIterator[Records]:
    """Connect to the quarantine container.

    Raises:
        ServiceError: The account cannot be reached, or refuses.
    """
    async with open_container(settings, settings.cosmos_quarantine_container) as container:
        yield Records(container)


def in_order(heads: Iterable[Head]) -> list[Head]:
    """Records in order of arrival, those of one partition key in the order of their documents' commits.

    Attempts of several hosts may quarantine a key's documents at odd times; where each of them was committed does
    not depend on that.
    """
    arrived = sorted(heads, key=lambda head: (head.quarantined_at, head.position))
    keys: dict[str, list[Head]] = {}
    for head in arrived:
        keys.setdefault(head.partition_key, []).append(head)
    for its_heads in keys.values():
        if all(head.committed is not None for head in its_heads):
            its_heads.sort(key=attrgetter("committed"))
        its_heads.reverse()
    return [keys[head.partition_key].pop() for head in arrived]


def _part_ids(head: Head) -> list[str]:
    return [f"{head.id}-{number}" for number in range(head.parts)]
