"""`python -m relay` on an outbox, a quarantine and a topic in memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import pytest
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError
from azure.servicebus._pyamqp.error import TokenAuthFailure

from relay.cli.committed import Outbox
from relay.cli.ordered import OrderedSender
from relay.cli.quarantine.holdings import Order
from relay.cli.quarantine.records import Records
from relay.cli.sources import SourceKind
from relay.cosmos.effective_keys import EffectiveKeys
from relay.cosmos.leases import LeasePosition, Positions
from relay.ledger import AcceptedLedger
from relay.quarantine import holds
from relay.quarantine.record import RECORD_TYPE
from relay.quarantine.summaries import Filter, RecordSummary, in_order
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import Settings
from tests.support.in_memory_items import InMemoryItems
from tests.support.operators import Run, relay_command
from tests.unit.relay.topics import FakeTopic

ENVIRONMENT = {
    "COSMOS": "AccountEndpoint=https://127.0.0.1:1/;AccountKey=YQ==;",
    "SERVICEBUS": "Endpoint=sb://namespace.test/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
}

# Keys from here on lie in the second physical partition.
_SECOND = "n"


def cosmos_error(status: int) -> CosmosHttpResponseError:
    """What the SDK raises for an answer with this status."""
    kind: Any = CosmosResourceNotFoundError if status == 404 else CosmosHttpResponseError
    error: CosmosHttpResponseError = kind(status_code=status, message=f"status {status}")
    return error


def token_error(status: int) -> Exception:
    """What the SDK raises inside where a token is refused with this status."""
    kind: Any = TokenAuthFailure
    error: Exception = kind(status, b"said")
    return error


def record_id(identifier: str) -> str:
    """The id of a document's record."""
    return hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()


class Feed:
    """The container of the outbox: a change feed in pages, from two physical partitions.

    `tests/contracts/test_outbox_feeds.py` compares it with a container behind the SDK.

    Attributes:
        documents: What was committed, in order.
        page: The most items of a page.
        hidden: Ids that a query counts, but the feed does not bring.
        expiring: Ids of documents that expire once they were counted.
        fleeting: Ids of documents that expire once they were read.
        started: Where readings of the feed started.
    """

    id = "data"

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []
        self.page = 100
        self.hidden: set[str] = set()
        self.expiring: set[str] = set()
        self.fleeting: set[str] = set()
        self.started: list[float] = []

    def commit(self, identifier: str, key: str, lsn: int | None = None, **changes: Any) -> dict[str, Any]:
        """An event, with the next `_lsn` unless another is given."""
        document = {
            "id": identifier,
            "partitionKey": key,
            "type": "domainEvent",
            "data": {"action": "Named"},
            "_ts": 1000,
            "_lsn": len(self.documents) + 1 if lsn is None else lsn,
            **changes,
        }
        self.documents.append(document)
        return document

    async def read(self) -> dict[str, str]:
        return {"_rid": "rid"}

    async def read_feed_ranges(self) -> AsyncIterator[dict[str, Any]]:
        for bounds in (("", _SECOND), (_SECOND, "~")):
            yield {"Range": dict(zip(("min", "max"), bounds, strict=True))}

    async def feed_range_from_partition_key(self, key: str) -> dict[str, Any]:
        return {"Range": {"min": key, "max": f"{key}\0"}}

    async def query_items(self, text: str, parameters: list[dict[str, Any]], **scope: Any) -> AsyncIterator[Any]:
        values = {parameter["name"]: parameter["value"] for parameter in parameters}
        if "COUNT" not in text:
            for document in self._within(await self.feed_range_from_partition_key(scope["partition_key"])):
                if document["id"] == values["@id"]:
                    yield document
            return
        # A count comes in parts, one a physical partition.
        yield 0
        yield sum(
            document["type"] == values["@type"]
            and values["@since"] <= document["_ts"] < values["@until"]
            and values.get("@partitionKey", document["partitionKey"]) == document["partitionKey"]
            and ("@action" not in values or values["@action"] == _action(document))
            for document in self._within(scope["feed_range"])
        )
        self.documents = [document for document in self.documents if document["id"] not in self.expiring]

    def query_items_change_feed(
        self, feed_range: dict[str, Any], start_time: datetime, max_item_count: int = 100
    ) -> _Reading:
        self.started.append(start_time.timestamp())
        found = [
            document
            for document in self._within(feed_range)
            if document["id"] not in self.hidden and document["_ts"] > start_time.timestamp()
        ]
        self.documents = [document for document in self.documents if document["id"] not in self.fleeting]
        return _Reading(found, min(self.page, max_item_count))

    def _within(self, feed_range: dict[str, Any]) -> Iterator[dict[str, Any]]:
        bounds = feed_range["Range"]
        for document in list(self.documents):
            if bounds["min"] <= str(document["partitionKey"]) < bounds["max"]:
                yield document


def _action(document: dict[str, Any]) -> Any:
    data = document["data"]
    return data.get("action") if isinstance(data, dict) else None


class _Reading:
    def __init__(self, documents: list[dict[str, Any]], page: int) -> None:
        self._documents = documents
        self._page = page

    async def by_page(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        for start in range(0, len(self._documents), self._page):
            yield _Reading(self._documents[start : start + self._page], self._page).__aiter__()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        for document in self._documents:
            yield document


class MemoryOutbox(Outbox):
    """An outbox on a feed; the relay has passed everything up to `passed`, or nobody knows (None)."""

    def __init__(self, feed: Feed) -> None:
        self._feed = cast(ContainerProxy, feed)
        super().__init__(self._feed, self._feed)
        self.passed: int | None = 1_000

    async def positions(self) -> Positions:
        leases = [] if self.passed is None else [LeasePosition("h..0", "", "~", None, f'"{self.passed}"')]
        return Positions(EffectiveKeys(self._feed, {}), leases)


class InMemoryRecords(Records):
    """The quarantine on a store in memory.

    Attributes:
        gone: Ids of documents whose records somebody removes between the listing and the reading.
        coming: Documents that the relay stores as soon as a record was removed.
        behind: Whether a listing has what was removed since the one before it.
    """

    def __init__(self) -> None:
        self._memory = InMemoryItems()
        super().__init__(self._memory)
        self.gone: set[str] = set()
        self.coming: list[dict[str, Any]] = []
        self.behind = False
        self._removed: list[RecordSummary] = []
        self._stored = 0

    def put(self, document: dict[str, Any], reason: str = "message-refused", *, version: str = "") -> str:
        """A record of a document; another of the same document needs another `version`."""
        identifier = record_id(document["id"] + version)
        place = {"lsn": document["_lsn"], "order": document.get("order", 0)} if "_lsn" in document else {}
        self._memory.put(
            {
                "id": identifier,
                "partitionKey": document["partitionKey"],
                "type": RECORD_TYPE,
                "reason": reason,
                "detail": "said",
                "quarantinedAt": f"2026-02-09T11:00:00.{self._stored:06}Z",
                "position": 0,
                "invocationId": "i1",
                "document": document,
                **place,
            }
        )
        self._stored += 1
        return identifier

    @property
    def left(self) -> list[str]:
        """The ids of the documents still in quarantine, in order of arrival."""
        return [item["document"]["id"] for item in self._memory.stored if item["type"] == RECORD_TYPE]

    @property
    def parked_keys(self) -> list[str]:
        """The parked keys, in the order in which they were parked."""
        return [item["partitionKey"] for item in self._memory.stored if item["type"] == holds.PARKED_TYPE]

    @parked_keys.setter
    def parked_keys(self, keys: list[str]) -> None:
        for key in self.parked_keys:
            self._memory.take(holds.PARKED_ID, key)
        for number, key in enumerate(keys):
            since = f"2026-02-09T11:00:00.{number:06}Z"
            self._memory.put(holds.marker(key, record_id("because")) | {"since": since})

    @property
    def pending(self) -> list[Order]:
        """The pending orders."""
        found = [item for item in self._memory.stored if item["type"] == holds.ORDER_TYPE]
        return [Order(item["id"], item["partitionKey"], item["eventId"], item["orderedAt"]) for item in found]

    @pending.setter
    def pending(self, orders: list[Order]) -> None:
        for order in orders:
            self._memory.put({**order.data(), "type": holds.ORDER_TYPE})

    async def find(self, chosen: Filter, limit: int | None = None) -> list[RecordSummary]:
        removed, self._removed = self._removed, []
        return in_order([*removed, *await super().find(chosen, limit)])

    async def document(self, summary: RecordSummary) -> dict[str, Any] | None:
        if summary.document_id in self.gone:
            await super().remove(summary)
        return await super().document(summary)

    async def remove(self, summary: RecordSummary) -> None:
        await super().remove(summary)
        if self.behind:
            self._removed.append(summary)
        if self.coming:
            self.put(self.coming.pop(0), "key-parked")


class Deployment:
    """What the commands work on, and the commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feed = Feed()
        self.outbox = MemoryOutbox(self.feed)
        self.records = InMemoryRecords()
        self.topic = FakeTopic()
        for module in ("quarantine.lookups", "replay.command"):
            monkeypatch.setattr(f"relay.cli.{module}.open_outbox", self._open_outbox)
        for module in ("quarantine.command", "replay.command"):
            monkeypatch.setattr(f"relay.cli.{module}.open_records", self._open_records)
            monkeypatch.setattr(f"relay.cli.{module}.ordered_sender", self._open_sender)

    async def run(self, *words: str, typed: str | None = None) -> Run:
        """A command, for people."""
        return await relay_command(ENVIRONMENT, *words, typed=typed)

    async def data(self, *words: str, typed: str | None = None) -> dict[str, Any]:
        """A command, for scripts; the exit code is that of the process too."""
        run = await relay_command(ENVIRONMENT, *words, "--json", typed=typed)
        assert run.code == run.json["exitCode"]
        return run.json

    @asynccontextmanager
    async def _open_outbox(self, _: Settings) -> AsyncIterator[MemoryOutbox]:
        yield self.outbox

    @asynccontextmanager
    async def _open_records(self, _: Settings, source: SourceKind) -> AsyncIterator[InMemoryRecords]:
        yield self.records

    @asynccontextmanager
    async def _open_sender(self, _: Settings, *, with_original_id: bool = False) -> AsyncIterator[OrderedSender]:
        message_of = messages.with_original_id(messages.plain) if with_original_id else messages.plain
        pool = SenderPool(self.topic.client(), "t", 1)
        options: dict[str, Any] = {"send_timeout_s": 30.0, "attempt_timeout_s": 60.0, "pauses_s": (0, 0)}
        yield OrderedSender(ServiceBusPublisher(pool, message_of, AcceptedLedger(), **options), (0, 0))
