"""An operator: the commands of `python -m relay quarantine`, by what they are made of, at any time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relay.cli.records import Records
from relay.cli.release import Release
from relay.cli.sender import OrderedSender
from relay.cosmos.source import event_of
from relay.errors import OperationError, StoreError
from relay.events import Event, Reason, Rejected
from relay.evidence import AcceptedLedger
from relay.quarantine.items import Filter
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import OnPoison
from simulation.core.senders import SimulatedSenders
from simulation.core.store import SimulatedItems
from simulation.core.worker import EVENT_TYPE

if TYPE_CHECKING:
    from simulation.core.universe import Services

_PAUSE_S = 20.0


class _Outbox:
    """What a release asks of the outbox."""

    def event_of(self, document: Any) -> Event | Rejected:
        return event_of(document)

    async def passed_behind(self, event: Event) -> list[str]:
        return []


class Operator:
    """Discards what is poisoned, releases what was held back, and orders what blocks to be set aside."""

    def __init__(self, services: Services, number: int) -> None:
        self.services = services
        self.process = services.world.process(f"operator-{number}")
        self.process.start(self._run())

    async def _run(self) -> None:
        entropy = self.services.world.entropy
        records = Records(SimulatedItems(self.services.to_store, self.services.store))
        while True:
            await asyncio.sleep(_PAUSE_S * entropy.uniform(0.5, 2))
            try:
                if self.services.policy is OnPoison.BLOCK:
                    await self._order(records)
                else:
                    await self._clear(records)
            except (StoreError, OperationError):
                pass

    async def _order(self, records: Records) -> None:
        """`quarantine add`, for what the operator sees waiting."""
        for key, event_id in self.services.waiting():
            await records.order(key, event_id)

    async def _clear(self, records: Records) -> None:
        """`quarantine discard` of what is poisoned, and `quarantine release` of the key."""
        found = await records.find(Filter())
        for summary in found:
            if summary.reason != Reason.KEY_PARKED and self.services.world.entropy.random() < 0.7:
                self.services.note(
                    "discards", self.process.name, key=summary.partition_key, id=summary.document_id
                )
                await records.remove(summary)
        for key in await records.parked():
            release = Release(records, OrderedSender(self._publisher()), _Outbox(), EVENT_TYPE)  # type: ignore[arg-type]
            await release.release_parked(key, None)

    def _publisher(self) -> ServiceBusPublisher:
        senders = SimulatedSenders(self.process, self.services.to_topic, self.services.topic)
        return ServiceBusPublisher(
            senders, messages.plain, AcceptedLedger(), send_timeout_s=10.0, attempt_timeout_s=60.0
        )
