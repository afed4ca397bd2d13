"""An operator: the commands of `python -m relay quarantine`, by what they are made of, at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from journal import entries
from relay.cli.records import Records
from relay.cli.release import Release
from relay.cli.sender import OrderedSender
from relay.errors import OperationError, StoreError
from relay.events import Event, Reason, Rejected
from relay.evidence import AcceptedLedger
from relay.quarantine.items import Filter, RecordSummary
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import OnPoison
from simulation.senders import SimulatedSenders
from simulation.services import Services
from simulation.store import SimulatedItems

# Seconds between two looks of an operator: one is quick, one comes after a window has passed.
_PAUSES_S = (20.0, 120.0, 1000.0)

# How long an operator waits for the relay to set an event aside, where it does so by itself.
_PATIENCE_S = 900.0


class _Outbox:
    """What a release asks of the outbox."""

    def __init__(self, event_of: Callable[[Any], Event | Rejected]) -> None:
        self.event_of = event_of

    async def passed_behind(self, event: Event) -> list[str]:
        return []


class Operator:
    """Discards what is poisoned, releases what was held back, and orders what blocks to be set aside."""

    def __init__(
        self, services: Services, number: int, event_of: Callable[[Any], Event | Rejected], event_type: str
    ) -> None:
        """`event_of` makes events of documents, as the outbox does, and `event_type` is the type of events."""
        self.services = services
        self._outbox = _Outbox(event_of)
        self._event_type = event_type
        self.process = services.world.process(f"operator-{number}")
        self.process.start(self._run())

    async def _run(self) -> None:
        entropy = self.services.world.entropy
        pause_s = entropy.choice(_PAUSES_S)
        records = Records(SimulatedItems(self.services.to_store, self.services.store))
        while True:
            await asyncio.sleep(pause_s * entropy.uniform(0.5, 2))
            try:
                await self._order(records)
                if self.services.policy is not OnPoison.BLOCK:
                    await self._clear(records)
            except (StoreError, OperationError):
                pass

    async def _order(self, records: Records) -> None:
        """`quarantine add`, for what holds up its key, as the log says.

        That is needed with any policy: a process to which nothing is accepted cannot tell poison from an outage.
        """
        patience_s = 0.0 if self.services.policy is OnPoison.BLOCK else _PATIENCE_S
        for key, event_id in self.services.waiting(patience_s):
            await records.order(key, event_id)

    async def _clear(self, records: Records) -> None:
        """`quarantine discard` of what is poisoned, and `quarantine release` of the key."""
        for summary in await records.find(Filter()):
            if summary.reason != Reason.KEY_PARKED and self.services.world.entropy.random() < 0.7:
                await self._discard(records, summary)
        for key in await records.parked():
            release = Release(records, OrderedSender(self._publisher()), self._outbox, self._event_type)  # type: ignore[arg-type]
            await release.release_parked(key, None)
            # What was parked behind poison may be poison itself, which shows now. An outage is no reason.
            for kept in release.still_invalid:
                if (key, kept.summary.document_id) in self.services.unsound:
                    await self._discard(records, kept.summary)

    async def _discard(self, records: Records, summary: RecordSummary) -> None:
        key, event_id = summary.partition_key, str(summary.document_id)
        self.services.discarded.add((key, event_id))
        self.services.journal.append(
            entries.Discarded(at=self.services.at, by=self.process.name, key=key, id=event_id)
        )
        await records.remove(summary)

    def _publisher(self) -> ServiceBusPublisher:
        senders = SimulatedSenders(self.process, self.services.to_topic, self.services.topic)
        return ServiceBusPublisher(
            senders, messages.plain, AcceptedLedger(), send_timeout_s=10.0, attempt_timeout_s=60.0
        )
