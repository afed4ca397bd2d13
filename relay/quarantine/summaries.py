"""Quarantine records without their documents: which are asked for, and in which order they are released."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from relay.place import Place, PlaceInFeed


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
        """A summary from a row with the names of the record, and with `documentId` and `place`."""
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
            committed=Place(lsn=row.get("lsn"), order=row.get("place"), ulid=row.get("ulid")).in_feed,
        )

    def data(self) -> dict[str, Any]:
        """For `--json`, under the names of the record."""
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
    """Which records: all, or those with a reason, a partition key, or both.

    Attributes:
        reason: The code of the reason.
        partition_key: The record's partition key.
        since: Only records with a `quarantinedAt` that is not before this, in ISO 8601 as records have it.
    """

    reason: str | None = None
    partition_key: str | None = None
    since: str | None = None


def in_order(summaries: Iterable[RecordSummary]) -> list[RecordSummary]:
    """Records in order of arrival, those of one partition key in the order of their documents' commits.

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
