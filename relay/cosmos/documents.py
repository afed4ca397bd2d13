"""From documents of the Cosmos DB change feed to events, in commit order."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from relay.events import Document, Event, Received, Rejected, read_event


def select(documents: Iterable[Document | None], event_type: str) -> Received:
    """Pick the documents of `event_type`, put them into commit order, and check each."""
    received = Received()
    chosen: list[Document] = []
    for wrapped in documents:
        # The trigger's Document is a UserDict, every look into which is two calls: look into its dict instead.
        document: Document | None = wrapped.data if isinstance(wrapped, UserDict) else wrapped
        if document is None or document.get("type") != event_type:
            received.ignored += 1
        else:
            chosen.append(document)
    for position, document in enumerate(in_commit_order(chosen)):
        event = event_of(document, position)
        if isinstance(event, Event):
            received.events.append(event)
        else:
            received.rejected.append(event)
    return received


def event_of(document: Document, position: int = 0) -> Event | Rejected:
    """The event of a document of the relayed type; `position` is its place among those it came with."""
    committed_at = document.get("_ts")
    if type(committed_at) is not int:
        return read_event(document, position)
    ttl = document.get("ttl")
    # Without a `ttl` of its own, or with -1, a document stays, as the container is provisioned.
    # https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live
    expires_at = committed_at + ttl if type(ttl) is int and ttl > 0 else None
    return read_event(document, position, committed_at=committed_at, expires_at=expires_at)


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
