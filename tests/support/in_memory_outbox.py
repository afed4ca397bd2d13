"""An outbox in memory, for tests of what reads one."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.backends.cosmos.source import event_of, in_commit_order, select
from relay.backends.findings import Finding
from relay.backends.outbox import Committed, Found, Gone, NextPage, Position, Range, Reading
from relay.core import jsontext
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.errors import ServiceError
from relay.core.events import Event, EventName, Rejected
from relay.core.place import Place, PlaceInFeed
from relay.routes.selection import BY_DEFAULT


@dataclass
class InMemoryOutbox:
    """An outbox; it passes the contract suite in `tests/contracts/test_outboxes.py`.

    Attributes:
        documents: All documents that were stored, in the order of commits.
        committed: Those of them that are events, and what was committed without a document.
        keys: The name of the position of each key; "0" for the others.
        positions_at: How far the relay is, by the name of the position; none for nothing done.
        payloads: The data of events, by key and id.
        page: Maximum number of documents of a page of a range.
        hidden: Ids of documents that a range counts and does not bring.
        elsewhere: News that have turned out to be another stream's since.
        deleted: Ids of events that were read, and whose time to live has ended since.
        fails: What every method raises, as long as it is set.
        closed: Whether it was closed.
        blocked: What keeps the relay from reading it.
    """

    documents: list[dict[str, Any]] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    positions_at: dict[str, PlaceInFeed | None] = field(default_factory=lambda: {"0": None})
    payloads: dict[tuple[str, str], str] = field(default_factory=dict)
    page: int = 100
    hidden: set[str] = field(default_factory=set)
    elsewhere: list[EventName] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    fails: str | None = None
    closed: bool = False
    blocked: list[Finding] = field(default_factory=list)
    renewals: dict[str, int] = field(default_factory=dict)
    _read: int = 0

    def commit(self, identifier: str, partition_key: str = "k", **more: object) -> Committed:
        """Commit an event without a document; `more` are fields of Committed, and `data`, its JSON text."""
        data = more.pop("data", None)
        if data is not None:
            self.payloads[partition_key, identifier] = str(data)
        values = {
            "id": identifier,
            "partition_key": partition_key,
            "action": "Renamed",
            "committed_at": 1_000_000.0,
            "created_at": None,
            "sequence": None,
            "traceparent": None,
            "partition": self.keys.get(partition_key, "0"),
            "place": (len(self.committed) + 1, 0),
        }
        event = Committed(**(values | more))  # type: ignore[arg-type]
        self.committed.append(event)
        return event

    def store(self, *documents: dict[str, Any], at: int = 1000) -> None:
        """Commit documents in one transaction; a document may have an `_lsn` and a `_ts` of its own."""
        lsn = max((document["_lsn"] or 0 for document in self.documents), default=0) + 1
        for number, document in enumerate(documents):
            stored = {"_lsn": lsn, "_ts": at, **document}
            self.documents.append(stored)
            if stored["type"] == "domainEvent":
                key, order = str(stored["partitionKey"]), stored.get("order")
                place = (stored["_lsn"] or 0, order if type(order) is int else number)
                self.committed.append(
                    Committed.of(SourceDocument.plain(stored), self.keys.get(key, "0"), place, stored["_ts"])
                )
                self.payloads[key, stored["id"]] = jsontext.encode(stored["data"]).decode()

    def pass_all(self) -> None:
        """Set the positions to those after everything was published."""
        for event in self.committed:
            at = self.positions_at.get(event.partition)
            if at is None or event.place > at:
                self.positions_at[event.partition] = event.place
                self.renewals[event.partition] = self.renewals.get(event.partition, 0) + 1

    def reach(self, lsn: int | None) -> None:
        """Set the positions to those after everything up to an LSN was published.

        With None, no position shows how far it is.
        """
        self.positions_at = {} if lsn is None else {"0": (lsn, sys.maxsize)}

    def from_the_relays_position(self) -> InMemoryOutbox:
        """Begin with what the relay has not passed."""
        places = {event.id: self.positions_at.get(event.partition) for event in self.committed}
        self.committed = [
            event for event in self.committed if (at := places[event.id]) is None or event.place > at
        ]
        return self

    def answer(self) -> None:
        """Raise what every method raises, as long as there is anything."""
        if self.fails is not None:
            raise ServiceError(self.fails)

    async def news(self, limit: int, /) -> Sequence[Committed]:
        self.answer()
        found = self.committed[self._read : self._read + limit]
        self._read += len(found)
        return found

    def given_elsewhere(self) -> Collection[EventName]:
        found, self.elsewhere = self.elsewhere, []
        return found

    async def positions(self) -> Sequence[Position]:
        self.answer()
        return [
            Position(
                name,
                "host",
                None if place is None else str(place[0]),
                place,
                renewal=self.renewals.get(name),
                held_s=60.0,
            )
            for name, place in self.positions_at.items()
        ]

    async def obstacles(self) -> Sequence[Finding]:
        self.answer()
        return self.blocked

    async def next_pages(self, limit: int, /) -> Sequence[NextPage]:
        self.answer()
        waiting = [document for document in self.documents if not self._passed(document)]
        of_partition: dict[str, list[StoredDocument]] = {name: [] for name in self.positions_at}
        for document in waiting:
            of_partition.setdefault(self.keys.get(str(document["partitionKey"]), "0"), []).append(document)
        return [NextPage(name, select(found[:limit], BY_DEFAULT)) for name, found in of_partition.items()]

    async def partition_of(self, partition_key: str, /) -> str | None:
        self.answer()
        return self.keys.get(partition_key, "0")

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        self.answer()
        of_key = [event for event in self.committed if event.partition_key == partition_key]
        found = [event for event in of_key if event.id not in self.deleted]
        return found[-limit:], len(found) > limit

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        self.answer()
        return {each: self.payloads[partition_key, each] for each in ids if (partition_key, each) in self.payloads}

    async def identity(self) -> str:
        self.answer()
        return "in memory"

    async def in_range(self, chosen: Range, /) -> Reading:
        self.answer()
        return _InMemoryReading(self, chosen)

    def event_of(self, document: SourceDocument, /) -> Event | Rejected:
        return event_of(document)

    async def restored(self, document: SourceDocument, /) -> SourceDocument | None:
        return None

    def document_of(self, stored: StoredDocument, place: Place | None = None, /) -> SourceDocument:
        return SourceDocument.plain(stored)

    async def current(self, partition_key: str, identifier: str, /) -> SourceDocument | None:
        self.answer()
        name = (partition_key, identifier)
        found = (each for each in self.documents if (each["partitionKey"], each["id"]) == name)
        return next(map(SourceDocument.plain, found), None)

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        self.answer()
        for document in self.documents:
            if (document["partitionKey"], document["id"]) == (partition_key, identifier):
                return Found(
                    document["type"],
                    document["type"] == "domainEvent",
                    self._passed(document),
                    [SourceDocument.plain(document).place],
                )
        return None

    async def passed(self, document: SourceDocument, /) -> bool:
        self.answer()
        return self._passed(document.stored) is True

    async def passed_behind(self, event: Event, /) -> Collection[str]:
        self.answer()
        place = event.document.place.in_feed
        return [
            document["id"]
            for document in self.documents
            if document["partitionKey"] == event.partition_key and document["type"] == event.type
            if place is not None and (SourceDocument.plain(document).place.in_feed or place) > place
            if self._passed(document) is not False
        ]

    async def close(self) -> None:
        self.closed = True

    def _passed(self, document: StoredDocument) -> bool | None:
        name, place = self.keys.get(document["partitionKey"], "0"), SourceDocument.plain(document).place.in_feed
        if place is None or name not in self.positions_at:
            return None
        at = self.positions_at[name]
        return at is not None and place <= at


class _InMemoryReading:
    def __init__(self, outbox: InMemoryOutbox, chosen: Range) -> None:
        self.unread = 0
        self.gone: list[Gone] = []
        self._outbox = outbox
        self._range = chosen

    async def count(self) -> int | None:
        return len(self._documents())

    async def pages(self) -> AsyncGenerator[list[SourceDocument], None]:
        documents = self._documents()
        shown = [each for each in documents if each.fields["id"] not in self._outbox.hidden]
        for start in range(0, len(shown), self._outbox.page):
            yield list(shown[start : start + self._outbox.page])
        self.unread = len(documents) - len(shown)

    def _documents(self) -> Sequence[SourceDocument]:
        self._outbox.answer()
        return in_commit_order(
            [
                document
                for document in map(SourceDocument.plain, self._outbox.documents)
                if document.fields["type"] == "domainEvent"
                and self._range.since <= document.stored["_ts"] < self._range.until
                and self._range.holds(document)
            ]
        )
