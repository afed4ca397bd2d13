"""An operator: the commands of `python -m relay quarantine`, by what they are made of, at any time."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from outbox_relay.operator.cli.release import Release
from outbox_relay.operator.cli.sender import OrderedSender
from relay.config.settings import OnPoison, Settings
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.errors import OperationError, StoreError
from relay.core.events import Event, Reason, Rejected
from relay.core.evidence import AcceptedLedger
from relay.core.place import Place
from relay.quarantine.items import Filter, Items, RecordSummary
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from verification.journal import entries
from verification.simulation.journal_keeper import Notes
from verification.simulation.senders import SimulatedSenders
from verification.simulation.services import WINDOW_S, Services
from verification.simulation.store import SimulatedItems

# Of these, a release needs to know which events are the relay's.
_SETTINGS = Settings.from_environment(
    {
        "SQL": "postgresql://simulated/outbox",
        "SERVICEBUS__fullyQualifiedNamespace": "simulated.servicebus.windows.net",
    }
)


class _Outbox:
    """The part of the outbox that a release needs."""

    def __init__(
        self,
        document_of: Callable[[StoredDocument, Place | None], SourceDocument],
        event_of: Callable[[SourceDocument], Event | Rejected],
    ) -> None:
        self.document_of = document_of
        self.event_of = event_of

    async def passed_behind(self, event: Event) -> list[str]:
        return []

    async def passed(self, _document: SourceDocument) -> bool:
        return False


class BaseOperator(ABC):
    """Discards what is poisoned, releases what was held back, and orders what blocks to be set aside.

    Attributes:
        pauses_s: Seconds between two looks, of which one is chosen: an operator is quick, or comes after a window
            has passed.
        patience_s: How long an operator waits for the relay to set an event aside, where it does so by itself.
    """

    pauses_s: Sequence[float] = (20.0, 120.0, 1000.0)
    patience_s = 900.0

    def __init__(self, notes: Notes, number: int, window_s: float = WINDOW_S) -> None:
        """Create an operator.

        Its pauses are in proportion to the duplicate detection window, `window_s` seconds.
        """
        self._scale = window_s / WINDOW_S
        self.notes = notes
        self.process = notes.world.process(f"operator-{number}")
        self.process.start(self._run())

    @abstractmethod
    def _items(self) -> Items:
        """Return the store of the quarantine."""

    @abstractmethod
    async def _release(self, records: QuarantineAdmin, key: str) -> Release:
        """Release what is parked of a key."""

    async def _run(self) -> None:
        entropy = self.notes.world.entropy
        pause_s = entropy.choice(self.pauses_s) * self._scale
        records = QuarantineAdmin(self._items())
        while True:
            await asyncio.sleep(pause_s * entropy.uniform(0.5, 2))
            try:
                await self._order(records)
                if self.notes.policy is not OnPoison.BLOCK:
                    await self._clear(records)
            except (StoreError, OperationError):
                pass

    async def _order(self, records: QuarantineAdmin) -> None:
        """`quarantine add`, for what holds up its key, as the log says.

        That is needed with any policy: a process to which nothing is accepted cannot tell poison from an outage.
        """
        patience_s = 0.0 if self.notes.policy is OnPoison.BLOCK else self.patience_s * self._scale
        for key, event_id in self.notes.waiting(patience_s):
            await records.order(key, event_id)

    async def _clear(self, records: QuarantineAdmin) -> None:
        """`quarantine discard` of what is poisoned, and `quarantine release` of the key."""
        for summary in await records.find(Filter()):
            if summary.reason != Reason.KEY_PARKED and self.notes.world.entropy.random() < 0.7:
                await self._discard(records, summary)
        for key in await records.parked():
            release = await self._release(records, key)
            # What was parked behind poison may be poison itself, which shows now. An outage is no reason.
            for kept in release.still_invalid:
                if (key, kept.summary.document_id) in self.notes.unsound:
                    await self._discard(records, kept.summary)

    async def _discard(self, records: QuarantineAdmin, summary: RecordSummary) -> None:
        key, event_id = summary.partition_key, str(summary.document_id)
        self.notes.discarded.add((key, event_id))
        self.notes.journal.append(entries.Discarded(at=self.notes.at, by=self.process.name, key=key, id=event_id))
        await records.remove(summary)


class Operator(BaseOperator):
    """An operator of services in memory."""

    def __init__(
        self,
        services: Services,
        number: int,
        document_of: Callable[[StoredDocument, Place | None], SourceDocument],
        event_of: Callable[[SourceDocument], Event | Rejected],
    ) -> None:
        """`document_of` reads what quarantine has, and `event_of` makes events of it, as the outbox does."""
        super().__init__(services, number, services.topic.window_s)
        self.services = services
        self._outbox = _Outbox(document_of, event_of)

    def _items(self) -> Items:
        return SimulatedItems(self.services.to_store, self.services.store)

    async def _release(self, records: QuarantineAdmin, key: str) -> Release:
        backend: Any = SimpleNamespace(settings=_SETTINGS)
        release = Release(records, OrderedSender(self._publisher()), self._outbox, backend)  # type: ignore[arg-type]
        await release.release_parked(key, None)
        return release

    def _publisher(self) -> ServiceBusPublisher:
        senders = SimulatedSenders(self.process, self.services.to_topic, self.services.topic)
        return ServiceBusPublisher(
            senders, messages.plain, AcceptedLedger(), send_timeout_s=10.0, attempt_timeout_s=60.0
        )
