"""The quarantine container as the commands see it: summaries of records in order of arrival, and documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from relay.cli.containers import explaining_service_errors, open_container
from relay.cli.quarantine.holdings import Holdings
from relay.cosmos.quarantine_record import RECORD_TYPE
from relay.errors import UsageError
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

# Ids are 40 hexadecimal digits; this many are shown.
SHORT_ID = 12

_SUMMARY = (
    "SELECT c.id, c.partitionKey, c.reason, c.detail, c.quarantinedAt, c.position, c.invocationId, "
    'c.documentParts, c.document.id AS documentId, c.lsn, c["order"] AS place FROM c'
)


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """A quarantine record without its document.

    Attributes:
        id: The record's id, not the document's.
        partition_key: The record's partition key: the document's, if that is a string.
        reason: The code of the reason.
        detail: The reason in words.
        quarantined_at: ISO 8601 in UTC, to the microsecond.
        position: Its place among the records of one invocation.
        invocation_id: The invocation that quarantined it.
        document_id: The document's id; None if that is no string, or if the document is stored in parts.
        parts: The number of items that hold the document; 0 if the record itself holds it.
        committed: The document's place in the change feed: its `_lsn`, and its `order` within the commit or 0;
            None if it is not known.
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
    def of(cls, row: dict[str, Any]) -> RecordSummary:
        """A summary from a row of the query."""
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
        """For `--json`, under the names in the container."""
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
    """Which records: all, or those with a reason, a partition key, or both."""

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
        holdings: The parked keys and the orders, which are in the same container.
    """

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container
        self.holdings = Holdings(container)

    async def count(self, chosen: Filter) -> int:
        """How many records there are."""
        where, parameters = chosen.clause()
        with explaining_service_errors(self._container.id):
            counts = self._container.query_items("SELECT VALUE COUNT(1) FROM c" + where, parameters=parameters)
            return sum([int(str(count)) async for count in counts])

    async def find(self, chosen: Filter, limit: int | None = None) -> list[RecordSummary]:
        """The oldest records in order of arrival, at most `limit`; those of one key in commit order."""
        where, parameters = chosen.clause()
        found: list[RecordSummary] = []
        with explaining_service_errors(self._container.id):
            query = f"{_SUMMARY}{where} ORDER BY c.quarantinedAt"
            rows = self._container.query_items(query, parameters=parameters)
            async for row in rows:
                if limit is not None and len(found) >= limit:
                    break
                found.append(RecordSummary.of(row))
        return in_order(found)

    async def find_by_ids(self, ids: list[str]) -> tuple[list[RecordSummary], list[str]]:
        """The records with these ids or beginnings of ids, in order of arrival; and the ids that no record has.

        Raises:
            UsageError: More than one record has an id that begins so.
        """
        found: dict[str, RecordSummary] = {}
        missing = []
        for beginning in ids:
            where, parameters = Filter().clause()
            parameters.append({"name": "@id", "value": beginning})
            query = f"{_SUMMARY}{where} AND STARTSWITH(c.id, @id)"
            with explaining_service_errors(self._container.id):
                rows = self._container.query_items(query, parameters=parameters)
                summaries = [RecordSummary.of(row) async for row in rows]
            if len(summaries) > 1:
                count = len(summaries)
                raise UsageError(f"{count} records have an id that begins with {beginning!r}: give more of it")
            if not summaries:
                missing.append(beginning)
            found |= {summary.id: summary for summary in summaries}
        return in_order(found.values()), missing

    async def document(self, summary: RecordSummary) -> dict[str, Any] | None:
        """The quarantined document, joined from its parts; None if the record no longer exists."""
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        with explaining_service_errors(self._container.id):
            try:
                if summary.parts == 0:
                    record = await self._container.read_item(summary.id, partition_key=summary.partition_key)
                    document: dict[str, Any] = record["document"]
                    return document
                texts = [
                    str((await self._container.read_item(part, partition_key=summary.partition_key))["text"])
                    for part in _part_ids(summary)
                ]
            except CosmosResourceNotFoundError:
                return None
        whole: dict[str, Any] = json.loads("".join(texts))
        return whole

    async def remove(self, summary: RecordSummary) -> None:
        """Remove a record and its parts in one transaction, if they still exist."""
        from azure.cosmos.exceptions import CosmosBatchOperationError

        ids = [summary.id, *_part_ids(summary)]
        with explaining_service_errors(self._container.id):
            try:
                await self._container.execute_item_batch(
                    [("delete", (item,)) for item in ids], partition_key=summary.partition_key
                )
            except CosmosBatchOperationError as error:
                if error.status_code != 404:
                    raise
                # Somebody else has removed some of the items.
                for item in ids:
                    await self._remove_item(item, summary.partition_key)

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


def in_order(summaries: Iterable[RecordSummary]) -> list[RecordSummary]:
    """Records in order of arrival, those of one partition key in the order of their documents' commits.

    Several hosts may quarantine the documents of a key in any order; their places in the change feed do not depend
    on that.
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


def _part_ids(summary: RecordSummary) -> list[str]:
    return [f"{summary.id}-{number}" for number in range(summary.parts)]
