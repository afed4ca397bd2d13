"""The parts of every universe of the relay for Cosmos DB.

They are hosts, an operator, a writer, and the faults of a plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from verification.simulation.faults import Fault
from verification.simulation.plan import Plan
from verification.simulation.topic import CONDITIONS
from verification.simulation.world import Process, World

SPAN_S = 240.0
"""Commits and faults happen within this time, in seconds."""

EVENT_TYPE = "domainEvent"

_KEYS = 12

# What is not published after all faults have ended, within this time, is stuck.
_PATIENCE_S = 7200.0

# Seconds between two events after that.
_TRICKLE_S = 60.0

# Hosts that work at any time, others being killed or frozen.
_HOSTS = 2

Document = dict[str, Any]


class Host(Protocol):
    """A host, which calls a worker."""

    process: Process

    @property
    def works(self) -> bool:
        """Neither killed nor frozen."""


HostT = TypeVar("HostT", bound=Host)


class BaseUniverse(ABC, Generic[HostT]):
    """The processes, the writer and the faults of one plan."""

    def __init__(self, world: World, chosen: Plan) -> None:
        self.world = world
        self.plan = chosen
        self.hosts: list[HostT] = []
        self._hosts_made = 0

    @abstractmethod
    def _begin(self) -> Callable[[Fault], None]:
        """Prepare everything but the hosts; returns what lets a fault happen."""

    @abstractmethod
    def _host(self, name: str) -> HostT:
        """Start a host."""

    @abstractmethod
    def _store(self, key: str, documents: list[Document]) -> None:
        """Commit documents of one key together."""

    @abstractmethod
    def _is_quiet(self) -> bool:
        """Return True if every lease has passed everything, and no key is parked."""

    def run(self) -> bool:
        """Run it; returns whether everything was published in time."""
        strike = self._begin()
        self.keep_hosts()
        self._plan_commits()
        for fault in self.plan.faults:
            self.world.outside.at(fault.at, strike, fault)
        last = max((fault.at + fault.lasts_s for fault in self.plan.faults), default=0.0)
        self.world.run(lambda: False, max(last, SPAN_S) + 1)
        self.keep_hosts()
        self._trickle(0)
        return self.world.run(self._is_quiet, _PATIENCE_S)

    @property
    def working(self) -> list[HostT]:
        """The hosts that work now."""
        return [host for host in self.hosts if host.works]

    def keep_hosts(self) -> None:
        """Start hosts in place of those that do not work."""
        self.hosts = [host for host in self.hosts if host.process.is_alive]
        self.world.bury()
        for _ in range(_HOSTS - sum(host.works for host in self.hosts)):
            self._hosts_made += 1
            self.hosts.append(self._host(f"host-{self._hosts_made}"))

    def _plan_commits(self) -> None:
        entropy = self.world.entropy
        left, number = self.plan.events, 0
        while left > 0:
            size = min(left, entropy.choice((1, 1, 1, 2, 3, 4)))
            left -= size
            number += 1
            self.world.outside.at(entropy.uniform(0, SPAN_S), self._commit, number, size)

    def _trickle(self, number: int) -> None:
        """Commit a sound event now and then: while nothing at all is accepted, nothing is poison."""
        key = f"key-{number % _KEYS}"
        self._store(key, [_document(key, f"t{number}", 0)])
        self.world.outside.after(_TRICKLE_S, self._trickle, number + 1)

    def _commit(self, number: int, size: int) -> None:
        key = f"key-{self.world.entropy.randrange(_KEYS)}"
        documents = [_document(key, f"e{number}", order) for order in range(size)]
        for document in documents:
            if self.world.entropy.random() < 0.02:
                document["refused"] = self.world.entropy.choice(CONDITIONS)
            elif self.world.entropy.random() < 0.01:
                document["data"] = "no object"
        self._store(key, documents)


def _document(key: str, commit: str, order: int) -> Document:
    return {
        "id": f"{commit}-{order}",
        "partitionKey": key,
        "type": EVENT_TYPE,
        "order": order,
        "data": {"action": "Changed", "commit": commit},
    }
