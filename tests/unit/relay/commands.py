"""`python -m relay` on an outbox, a quarantine and a topic in memory."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError
from azure.servicebus._pyamqp.error import TokenAuthFailure

from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from outbox_relay.operator.cli.sender import OrderedSender, Rehearsal
from outbox_relay.operator.outcomes import Removal
from relay.backends.outbox import Outbox
from relay.config.settings import Settings
from relay.core import holds
from relay.core.evidence import AcceptedLedger
from relay.quarantine.items import Filter, Item, RecordSummary, in_order
from relay.quarantine.record import RECORD_TYPE, Kept
from relay.servicebus import messages
from relay.servicebus.messages import Contract
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.support.in_memory_items import InMemoryItems
from tests.support.in_memory_outbox import InMemoryOutbox
from tests.support.operators import Run, relay_command
from tests.unit.relay.topics import FakeTopic

ENVIRONMENT = {
    "COSMOS": "AccountEndpoint=https://127.0.0.1:1/;AccountKey=YQ==;",
    "SERVICEBUS": "Endpoint=sb://namespace.test/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
}


def cosmos_error(status: int) -> CosmosHttpResponseError:
    """The SDK's error for an answer with this status."""
    kind: Any = CosmosResourceNotFoundError if status == 404 else CosmosHttpResponseError
    error: CosmosHttpResponseError = kind(status_code=status, message=f"status {status}")
    return error


def token_error(status: int) -> Exception:
    """The SDK's inner error if a token is refused with this status."""
    kind: Any = TokenAuthFailure
    error: Exception = kind(status, b"said")
    return error


def record_id(identifier: str) -> str:
    """The id of a document's record."""
    return hashlib.sha1(identifier.encode(), usedforsecurity=False).hexdigest()


class InMemoryRecords(QuarantineAdmin):
    """The quarantine on a store in memory.

    Attributes:
        gone: Ids of documents whose records somebody removes between the listing and the reading or removal.
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
            self._memory.put(holds.parked_marker_item(key, record_id("because")) | {"since": since})

    @property
    def pending(self) -> list[Item]:
        """The pending orders."""
        return [item for item in self._memory.stored if item["type"] == holds.ORDER_TYPE]

    @pending.setter
    def pending(self, orders: list[Item]) -> None:
        for order in orders:
            self._memory.put(dict(order))

    async def find(self, chosen: Filter, limit: int | None = None) -> list[RecordSummary]:
        removed, self._removed = self._removed, []
        return in_order([*removed, *await super().find(chosen, limit)])

    async def document(self, summary: RecordSummary) -> Kept | None:
        if summary.document_id in self.gone:
            await super().remove(summary)
        return await super().document(summary)

    async def remove(
        self, summary: RecordSummary, outbox: Outbox | None = None, removal: Removal | None = None
    ) -> bool:
        if summary.document_id in self.gone:
            await super().remove(summary)
        is_removed = await super().remove(summary, outbox, removal)
        if self.behind:
            self._removed.append(summary)
        if self.coming:
            self.put(self.coming.pop(0), "key-parked")
        return is_removed


class Deployment:
    """The services of the commands, and the commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outbox = InMemoryOutbox()
        # The relay has passed whatever the tests commit, unless they say otherwise.
        self.outbox.reach(1_000)
        self.records = InMemoryRecords()
        self.topic = FakeTopic()
        monkeypatch.setattr(
            "outbox_relay.operator.backends.cosmos.backend.CosmosOperatorBackend.open_outbox",
            lambda _: self.outbox,
        )
        for module in ("quarantine", "replay", "blocked_keys"):
            monkeypatch.setattr(f"outbox_relay.operator.cli.{module}.open_records", self._open_records)
        for module in ("quarantine", "replay"):
            monkeypatch.setattr(f"outbox_relay.operator.cli.{module}.ordered_sender", self._open_sender)
        monkeypatch.setattr("outbox_relay.operator.cli.replay.rehearsal", self._open_rehearsal)

    def commit(self, identifier: str, key: str, **changes: Any) -> dict[str, Any]:
        """An event in its own commit; `changes` are members of its document."""
        document = {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": "Named"}}
        self.outbox.store(document | changes)
        return self.outbox.documents[-1]

    async def run(self, *words: str, typed: str | None = None) -> Run:
        """A command, for people."""
        return await relay_command(ENVIRONMENT, *words, typed=typed)

    async def data(self, *words: str, typed: str | None = None) -> dict[str, Any]:
        """A command, for scripts; the exit code is that of the process too."""
        run = await relay_command(ENVIRONMENT, *words, "--json", typed=typed)
        assert run.code == run.json["exitCode"]
        return run.json

    @asynccontextmanager
    async def _open_records(self, _: Settings) -> AsyncIterator[InMemoryRecords]:
        yield self.records

    @asynccontextmanager
    async def _open_sender(self, _: Settings, *, with_original_id: bool = False) -> AsyncIterator[OrderedSender]:
        pool = SenderPool(self.topic.client(), "t", 1)
        options: dict[str, Any] = {"send_timeout_s": 30.0, "attempt_timeout_s": 60.0, "pauses_s": (0, 0)}
        publisher = ServiceBusPublisher(pool, _message_of(with_original_id), AcceptedLedger(), **options)
        yield OrderedSender(publisher, (0, 0))

    @asynccontextmanager
    async def _open_rehearsal(self, _: Settings, *, with_original_id: bool = False) -> AsyncIterator[Rehearsal]:
        pool = SenderPool(self.topic.client(), "t", 1)
        yield Rehearsal(pool, _message_of(with_original_id), timeout_s=30.0)
        await pool.close()


def _message_of(with_original_id: bool) -> Contract:
    return messages.with_original_id(messages.plain) if with_original_id else messages.plain
