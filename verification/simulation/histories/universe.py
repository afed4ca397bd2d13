"""One history of leases, as in the kind `leases`, with the relay's pipeline, publisher and source in every host.

A step lasts longer than the topic's duplicate detection window: an event that comes again is compared with the
leases, and the topic drops none that is sent again.
"""

from __future__ import annotations

from typing import cast

from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.leases import Positions
from relay.backends.cosmos.source import CosmosBatch, CosmosSource
from relay.core.documents import StoredDocument
from relay.core.errors import PublishError
from relay.core.pipeline import Relay
from relay.routes.selection import BY_DEFAULT
from relay.servicebus.messages import Message
from verification.simulation import determinism, services
from verification.simulation.core.worker import assemble
from verification.simulation.leases import universe
from verification.simulation.leases.container import Change
from verification.simulation.leases.processor import Keys, Lease, Leases
from verification.simulation.leases.universe import plan
from verification.simulation.plan import Plan, Result
from verification.simulation.world import EPOCH, Process, World

__all__ = ["plan", "simulate"]

# Virtual seconds of a step: longer than the topic's window and an attempt together.
_STEP_S = 1000.0

# The share of attempts in which the topic accepts nothing behind one of the page's events.
_FAILING = 0.2


def simulate(chosen: Plan) -> Result:
    """Run the history of a plan to its end."""
    world = World(f"{chosen.seed} histories")
    with determinism.of(world):
        try:
            history = History(chosen, world)
            history.run()
        finally:
            world.close()
    return Result(history.journal, history.violations, world.now, history.repeats)


class _Containers:
    """The positions of the leases, which a source asks its containers for."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    async def positions(self) -> Positions:
        return self._leases.positions(_KEYS)


class _Services(services.Services):
    """A topic and a quarantine; `history` learns what the topic accepts."""

    def __init__(self, world: World, chosen: Plan, history: History) -> None:
        super().__init__(world, chosen)
        self._history = history

    def _taken(self, message: Message, by: str, number: int, is_repeat: bool) -> None:
        if not is_repeat:
            self._history.accept(int(message.id), by)


class History(universe.History):
    """A history in which each host is a process with a relay."""

    def __init__(self, chosen: Plan, world: World) -> None:
        super().__init__(chosen)
        self._world = world
        self._services = _Services(world, chosen, self)
        self._source = CosmosSource(BY_DEFAULT, cast("Containers", _Containers(self.leases)))
        self._relays: dict[str, tuple[Process, Relay[CosmosBatch]]] = {}
        self._committed_at: list[int] = []
        # The last page of each host and lease, with its invocation and the number of attempts.
        self._attempts: dict[tuple[str, str], tuple[list[Change], str, int]] = {}
        self._reading: Lease
        self._accepted: set[int] = set()
        self._accepts = 0

    def accept(self, number: int, host: str) -> None:
        """Note that the topic has accepted an event from a host."""
        self._accepted.add(number)
        self._publish(host, self._reading, self.container.changes[number])
        self._accepts -= 1
        self._services.topic.is_busy = self._accepts == 0

    def _commit(self) -> None:
        super()._commit()
        self._committed_at.append(int(EPOCH + self.step * _STEP_S))

    def _deliver(self, host: str, lease: Lease, page: list[Change]) -> bool:
        """Attempt to deliver a page, by the process of a host."""
        self._world.now = max(self._world.now, self.step * _STEP_S)
        self._reading, self._accepts = lease, self._accepted_at_most(len(page))
        self._accepted.clear()
        process, relay = self._relays.get(host) or self._start(host)
        documents, (invocation, retry) = list(map(self._document, page)), self._attempt(host, lease, page)
        try:
            self._world.run_task(process, relay.handle(documents, invocation, retry), _STEP_S)
        except PublishError:
            return False
        finally:
            self._services.topic.is_busy = False
        for change in page:
            if change.number not in self._accepted:
                self._stop(change)
        return True

    def _accepted_at_most(self, page: int) -> int:
        """Return the number of events behind which the topic accepts nothing; a negative one is never reached."""
        if self.hosts.are_kind or self._entropy.random() >= _FAILING:
            return -1
        return self._entropy.randint(1, page)

    def _start(self, host: str) -> tuple[Process, Relay[CosmosBatch]]:
        process = self._world.process(host)
        self._relays[host] = process, assemble(self._services, process, self._source)
        return self._relays[host]

    def _attempt(self, host: str, lease: Lease, page: list[Change]) -> tuple[str, int]:
        """Return the invocation of a page, and the number of failed attempts before."""
        last, invocation, attempts = self._attempts.get((host, lease.token), ([], "", 0))
        if last is not page:
            invocation, attempts = f"{host}-{len(self.journal)}-{self.step}", 0
        self._attempts[host, lease.token] = page, invocation, attempts + 1
        return invocation, attempts

    def _document(self, change: Change) -> StoredDocument:
        key, committed_at = f"{change.slot:X}", self._committed_at[change.number]
        document = {"id": str(change.number), "partitionKey": key, "type": "domainEvent", "data": {"action": "A"}}
        return {**document, "_lsn": change.lsn, "_ts": committed_at}


_KEYS = Keys()
