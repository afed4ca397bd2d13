"""What a batch of changes holds for the relay: its events, in commit order, and what cannot become a message."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from relay.cosmos.quarantine import Quarantined
from relay.events import Document, DomainEvent, InvalidEvent


@dataclass(slots=True)
class Selection:
    """What a batch of changes holds.

    Attributes:
        events: Events to publish, in commit order.
        rejected: Documents of the relayed type that can never become a message.
        ignored: Documents of other types.
    """

    events: list[DomainEvent] = field(default_factory=list)
    rejected: list[Quarantined] = field(default_factory=list)
    ignored: int = 0

    @property
    def documents(self) -> int:
        """How many documents came, of any type."""
        return len(self.events) + len(self.rejected) + self.ignored


def select(documents: Iterable[Document | None], event_type: str) -> Selection:
    """Pick the documents of `event_type`, put them into commit order, and check each."""
    selection = Selection()
    chosen: list[Document] = []
    for wrapped in documents:
        # The trigger's Document is a UserDict, every look into which is two calls: look into its dict instead.
        document: Document | None = wrapped.data if isinstance(wrapped, UserDict) else wrapped
        if document is None or document.get("type") != event_type:
            selection.ignored += 1
        else:
            chosen.append(document)
    for position, document in enumerate(in_commit_order(chosen)):
        try:
            selection.events.append(DomainEvent.from_document(document, position))
        except InvalidEvent as invalid:
            selection.rejected.append(Quarantined(document, invalid.reason, invalid.detail, position))
    return selection


def in_commit_order(documents: Sequence[Document]) -> Sequence[Document]:
    """The documents of each transaction in the order in which their events happened.

    All documents of one transaction have the same `_lsn`, and the change feed does not specify their order
    (https://learn.microsoft.com/azure/cosmos-db/change-feed). An event's own `order`, its place within the
    commit, does; where a document of the transaction has none, the feed's order stays.
    """
    lsns = [document.get("_lsn") for document in documents]
    if all(one != other or one is None for one, other in pairwise(lsns)):
        return documents
    ordered: list[Document] = []
    for lsn, members in groupby(documents, lambda document: document.get("_lsn")):
        transaction = list(members)
        if lsn is not None and all(isinstance(document.get("order"), int) for document in transaction):
            transaction.sort(key=_order)
        ordered += transaction
    return ordered


def _order(document: Document) -> Any:
    return document["order"]


def group(events: Iterable[DomainEvent]) -> dict[str, list[DomainEvent]]:
    """Events by partition key, each list in the order given."""
    partitions: dict[str, list[DomainEvent]] = {}
    for event in events:
        partitions.setdefault(event.partition_key, []).append(event)
    return partitions
