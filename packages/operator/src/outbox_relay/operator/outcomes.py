"""The outcome of a record that an operator has removed from quarantine: it was released, or discarded.

An item `{"id": "outcome:…", "type": "quarantineOutcome", "outcome": "discarded", "recordId": …, "by": …, …}` is
written in the transaction that removes the record. It says who did it, when and why, and has the record's reason
and its place in the feed, but nothing of the document. Nothing that the relay decides depends on it. It has a time
to live, which counts where the container's is on (`defaultTtl: -1`).
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from relay.core.place import PlaceInFeed
from relay.quarantine.items import RecordSummary

OUTCOME_TYPE = "quarantineOutcome"

# Thirty days, in seconds.
_TTL_S = 2_592_000


class Outcome(StrEnum):
    """The fate that an operator gave a record."""

    RELEASED = "released"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Removal:
    """An operator's removal of a record.

    Attributes:
        outcome: What was done.
        by: The account that ran the command, as its machine names it.
        why: What the operator wrote; empty if nothing.
    """

    outcome: Outcome
    by: str
    why: str = ""

    @classmethod
    def by_this_account(cls, outcome: Outcome, why: str = "") -> Removal:
        """Return a removal by the account that this process runs as."""
        try:
            account = getpass.getuser()
        except (KeyError, OSError):  # a container may run as a number without a name
            account = "unknown"
        return cls(outcome, account, why)

    def item(self, summary: RecordSummary) -> dict[str, Any]:
        """Return the item to store for a record."""
        document = {} if summary.document_id is None else {"documentId": summary.document_id}
        place = {} if summary.committed is None else {"place": list(summary.committed)}
        return {
            "id": f"outcome:{uuid4().hex}",
            "partitionKey": summary.partition_key,
            "type": OUTCOME_TYPE,
            "outcome": str(self.outcome),
            "recordId": summary.id,
            "reason": summary.reason,
            "quarantinedAt": summary.quarantined_at,
            "at": datetime.now(UTC).isoformat(),
            "by": self.by,
            "why": self.why,
            "ttl": _TTL_S,
            **document,
            **place,
        }


@dataclass(frozen=True, slots=True)
class Removed:
    """A removal as the store has it.

    Attributes:
        record_id, partition_key, document_id, reason: Of the record that was removed.
        committed: The document's place in its feed, as of `RecordSummary`.
        quarantined_at: Of the record. A later record of the event is another one.
        at: ISO 8601 in UTC.
    """

    outcome: Outcome
    record_id: str
    partition_key: str
    document_id: str | None
    committed: PlaceInFeed | None
    reason: str
    quarantined_at: str
    at: str
    by: str
    why: str

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Removed:
        """Return the removal that an item describes."""
        place = item.get("place")
        return cls(
            Outcome(item["outcome"]),
            item["recordId"],
            item["partitionKey"],
            item.get("documentId"),
            None if place is None else (place[0], place[1]),
            item["reason"],
            item["quarantinedAt"],
            item["at"],
            item["by"],
            item["why"],
        )
