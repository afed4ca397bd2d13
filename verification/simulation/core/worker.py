"""A worker: a process with a relay, put together as `relay/backends/` does, on ports of this world."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from relay.backends.cosmos.source import select
from relay.core.documents import StoredDocument
from relay.core.errors import LeaseError
from relay.core.events import Event, Received, Rejected
from relay.core.evidence import AcceptedLedger
from relay.core.pipeline import BatchT, Relay
from relay.core.ports import Source
from relay.quarantine.quarantine import StoredQuarantine
from relay.routes.selection import BY_DEFAULT
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from verification.simulation.channel import LineError, RpcChannel
from verification.simulation.senders import SimulatedSenders
from verification.simulation.store import SimulatedItems

if TYPE_CHECKING:
    from verification.simulation import services
    from verification.simulation.core.container import Container
    from verification.simulation.core.leases import Leases
    from verification.simulation.core.services import Services
    from verification.simulation.world import Process


class WorkerDiedError(Exception):
    """The worker was killed during the invocation."""


class _Keys:
    def __init__(self, container: Container) -> None:
        self._container = container

    async def of(self, value: Any) -> str | None:
        return self._container.effective(value)


class SimulatedSource:
    """A `relay.core.ports.Source` over the lease container of this world."""

    def __init__(self, line: RpcChannel, leases: Leases, container: Container) -> None:
        self._line = line
        self._leases = leases
        self._keys = _Keys(container)

    async def read(self, batch: Iterable[StoredDocument | None], /) -> Received:
        return select(batch, BY_DEFAULT)

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        try:
            positions = await self._line.ask(lambda: self._leases.positions(self._keys))
        except LineError as error:
            raise LeaseError(f"the lease container cannot be read: {error}") from None
        passed = [
            item.position
            for item in items
            if item.partition_key is not None
            and await positions.has_passed(item.partition_key, item.document.lsn or 0)
        ]
        return frozenset(passed)


class Worker:
    """The worker of a host, from its start until it is killed."""

    def __init__(self, services: Services, name: str) -> None:
        self.process = services.world.process(name)
        self._services = services
        self._relay: Relay[Iterable[StoredDocument | None]] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self.process.on_death(self._died)

    def invoke(self, documents: Sequence[StoredDocument], invocation: str, retry: int) -> asyncio.Future[None]:
        """Call the function; the future belongs to the process that calls."""
        answer: asyncio.Future[None] = self._services.world.running.loop.create_future()
        if not self.process.is_alive:
            answer.set_exception(WorkerDiedError())
            return answer
        self._waiting.add(answer)
        self.process.loop.call_soon(self._begin, documents, invocation, retry, answer)
        return answer

    def _begin(
        self, documents: Sequence[StoredDocument], invocation: str, retry: int, answer: asyncio.Future[None]
    ) -> None:
        task = self.process.loop.create_task(self._handle(documents, invocation, retry))
        task.add_done_callback(lambda done: self._answer(answer, done.exception()))

    async def _handle(self, documents: Sequence[StoredDocument], invocation: str, retry: int) -> None:
        if self._relay is None:
            services = self._services
            source = SimulatedSource(services.to_leases, services.leases, services.container)
            self._relay = assemble(services, services.world.running, source)
        await self._relay.handle(documents, invocation, retry)

    def _answer(self, answer: asyncio.Future[None], error: BaseException | None) -> None:
        self._waiting.discard(answer)
        answer.get_loop().call_soon(_settle, answer, error)

    def _died(self) -> None:
        for answer in self._waiting:
            answer.get_loop().call_soon(_settle, answer, WorkerDiedError())


def _settle(answer: asyncio.Future[None], error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)


def assemble(services: services.Services, process: Process, source: Source[BatchT]) -> Relay[BatchT]:
    """Assemble the relay of a process, with everything that it has in memory."""
    publisher = ServiceBusPublisher(
        SimulatedSenders(process, services.to_topic, services.topic),
        messages.plain,
        AcceptedLedger(),
        send_timeout_s=10.0,
        attempt_timeout_s=60.0,
        duplicate_window_s=services.topic.window_s,
    )
    return Relay(
        source,
        publisher,
        StoredQuarantine(SimulatedItems(services.to_store, services.store)),
        duplicate_window_s=services.topic.window_s,
        on_poison=services.policy,
        attempt_timeout_s=60.0,
    )
