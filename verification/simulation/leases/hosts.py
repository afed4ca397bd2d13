"""Hosts that share the leases, and read, divide and checkpoint them; each owned lease is read by a reader."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from verification.simulation.leases.container import Change, Container, Partition, page_of
from verification.simulation.leases.processor import Lease, Leases, Part

Deliver = Callable[[str, Lease, list[Change]], bool]
"""Invoke the function of the host of a name with a page that was read through a lease; returns its success."""


@dataclass(slots=True)
class Reader:
    """The processing of a lease by a host, from its acquisition to its end.

    Attributes:
        lease: As it was acquired; `read` is the LSN up to which its range was read since.
        page: What the current invocation has.
        parts: What is left of the division of a lease whose partition is gone; None while it is read.
        is_held: Whether nothing of it happens, as where an invocation takes long.
    """

    lease: Lease
    read: int
    page: list[Change] = field(default_factory=list)
    parts: list[Part] | None = None
    is_held: bool = False


@dataclass(slots=True)
class Host:
    """A host. While it is frozen its leases expire."""

    name: str
    readers: dict[str, Reader] = field(default_factory=dict)
    is_alive: bool = True
    is_frozen: bool = False

    @property
    def works(self) -> bool:
        return self.is_alive and not self.is_frozen


class Hosts:
    """All hosts of the app."""

    def __init__(self, container: Container, leases: Leases, entropy: random.Random, deliver: Deliver) -> None:
        self._container = container
        self._leases = leases
        self._entropy = entropy
        self._deliver = deliver
        self._page = entropy.randint(1, 6)
        self._started = 0
        self.all: list[Host] = []
        self.are_kind = False
        """True once nothing fails any more: no lease is left behind, and losses are noticed."""

    def start(self) -> None:
        """Start a host; it makes the leases that are missing."""
        self._started += 1
        self.all.append(Host(f"host-{self._started}"))

    def take(self, host: Host) -> None:
        """Acquire a lease that nobody has, or whose owner is gone or frozen."""
        working = {each.name for each in self.all if each.works}
        free = [each for each in self._leases.all.values() if each.owner not in working]
        if free:
            self.acquire(host, self._entropy.choice(free))

    def acquire(self, host: Host, lease: Lease) -> None:
        """Become a lease's owner, and read on from its position. The old owner does not notice."""
        if lease.token not in host.readers:
            lease.owner = host.name
            host.readers[lease.token] = Reader(lease, lease.position)

    def is_idle(self, host: Host) -> bool:
        """Return True if the host has read, delivered and divided all that it owns."""
        return all(
            reader.parts is None and not reader.page and not self._behind(reader)
            for reader in host.readers.values()
        )

    def _behind(self, reader: Reader) -> bool:
        partition = self._holder(reader.lease)
        lease = reader.lease
        return partition is None or bool(page_of(partition, lease.minimum, lease.maximum, reader.read, 1))

    def step(self, host: Host) -> None:
        """Let one request of one reader happen."""
        free = [each for each in host.readers.values() if not each.is_held]
        if not free:
            return
        reader = self._entropy.choice(free)
        if reader.parts is not None:
            self._divide(host, reader, reader.parts)
        elif reader.page:
            self._invoke(host, reader)
        elif self._has_lost(host, reader) and (self.are_kind or self._entropy.random() < 0.5):
            del host.readers[reader.lease.token]
        else:
            self._read(reader)

    def _has_lost(self, host: Host, reader: Reader) -> bool:
        current = self._leases.all.get(reader.lease.token)
        return current is None or current.owner != host.name

    def _holder(self, lease: Lease) -> Partition | None:
        """Return the partition that a lease is read from, or None if it is gone."""
        found = self._container.overlapping(lease.minimum, lease.maximum)
        is_there = len(found) == 1 if lease.is_range else found[0].token == lease.token
        return found[0] if is_there else None

    def _read(self, reader: Reader) -> None:
        lease, partition = reader.lease, self._holder(reader.lease)
        if partition is None:
            reader.parts = self._leases.parts_of(lease)
            self._entropy.shuffle(reader.parts)
            return
        reader.page = page_of(partition, lease.minimum, lease.maximum, reader.read, self._page)
        # Behind the last page there is the partition's own LSN.
        reader.read = reader.page[-1].lsn if reader.page else partition.lsn

    def _invoke(self, host: Host, reader: Reader) -> None:
        if not self._deliver(host.name, reader.lease, reader.page):
            return
        position, reader.page = reader.page[-1].lsn, []
        if self._has_lost(host, reader):
            del host.readers[reader.lease.token]
        else:
            self._leases.all[reader.lease.token].position = position

    def _divide(self, host: Host, reader: Reader, parts: list[Part]) -> None:
        """Make the lease of one part, or end with the divided one. Nobody looks at its owner again."""
        token = reader.lease.token
        if parts:
            self._leases.create(parts.pop(), reader.read)
            if parts:
                return
            # Now and then the old lease cannot be deleted (azure-cosmos-dotnet-v3 issue 5604).
            is_left = not self.are_kind and self._entropy.random() < 0.1
            if not is_left:
                self._leases.delete(token)
        if not self._has_lost(host, reader):
            self._leases.all[token].owner = None
        del host.readers[token]
