"""An operator: the commands of `python -m relay quarantine`, by what they are made of, at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from relay.cli.records import Records
from relay.cli.release import Release
from relay.cli.sender import OrderedSender
from relay.errors import OperationError, StoreError
from relay.events import Event, Reason, Rejected
from relay.evidence import AcceptedLedger
from relay.quarantine.items import Filter
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import OnPoison
from simulation.line import Line
from simulation.senders import SimulatedSenders
from simulation.store import NotedItems, SimulatedItems
from simulation.topic import Topic
from simulation.world import World

_PAUSE_S = 20.0


class Services(Protocol):
    """What an operator uses of a universe."""

    world: World
    policy: OnPoison
    topic: Topic
    store: NotedItems
    to_topic: Line
    to_store: Line

    def note(self, what: str, by: str, **more: Any) -> None:
        """An entry in the journal."""

    def waiting(self) -> list[tuple[str, str]]:
        """The events that an operator sees waiting because of their content, by key and id."""


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
            release = Release(records, OrderedSender(self._publisher()), self._outbox, self._event_type)  # type: ignore[arg-type]
            await release.release_parked(key, None)

    def _publisher(self) -> ServiceBusPublisher:
        senders = SimulatedSenders(self.process, self.services.to_topic, self.services.topic)
        return ServiceBusPublisher(
            senders, messages.plain, AcceptedLedger(), send_timeout_s=10.0, attempt_timeout_s=60.0
        )
