"""The lease container, as the change feed processor keeps it: who reads which range, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from relay.backends.cosmos.leases import LeasePosition, Positions
from verification.journal import entries
from verification.simulation.core.container import Container

PREFIX = "account_database_container"


class LeaseLostError(Exception):
    """Another host has changed the lease, or it is gone."""


class LeaseChangedError(Exception):
    """The lease is another one than was read, and still the host's own."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: the range of the physical partition `number`, done up to the LSN `position`."""

    number: int
    minimum: str
    maximum: str
    position: int | None
    owner: str | None = None
    renewed: float = 0.0
    version: int = 0


Noted = Callable[..., None]
"""Gets the kind of an entry for the journal, the process, the lease, its owner, and what else the entry has."""


class Leases:
    """All leases of one trigger."""

    def __init__(self, container: Container, noted: Noted) -> None:
        self._container = container
        self._noted = noted
        self.all: dict[int, Lease] = {}

    def begin(self) -> None:
        """Make a lease for each physical partition without one, which starts at the beginning."""
        for each in self._container.partitions.values():
            self.all.setdefault(each.number, Lease(each.number, each.minimum, each.maximum, None))

    def change(self, read: Lease, **changes: Any) -> Lease:
        """Replace a lease as it was read (If-Match). Raises LeaseLostError if it is another one by now."""
        current = self.all.get(read.number)
        if current is None or current.version != read.version:
            raise LeaseLostError
        changed = self.all[read.number] = replace(current, version=current.version + 1, **changes)
        if "owner" in changes and current.owner is not None:
            self._noted(entries.Lost, current.owner, current)
        if "owner" in changes and changed.owner is not None:
            self._noted(entries.Claimed, changed.owner, changed)
        return changed

    def version_of(self, number: int) -> int | None:
        """Return the version of a lease, or None if it is gone."""
        current = self.all.get(number)
        return None if current is None else current.version

    def change_own(self, number: int, host: str, version: int | None, **changes: Any) -> Lease:
        """Change a lease that the host still owns, as it was read. Raises LeaseLostError and LeaseChangedError."""
        current = self.all.get(number)
        if current is None or not self._owns(current, host):
            raise LeaseLostError
        if current.version != version:
            raise LeaseChangedError
        changed = self.change(current, **changes)
        if changed.position != current.position:
            self._noted(entries.Checkpointed, host, changed, position=(changed.position,))
        return changed

    def _owns(self, lease: Lease, host: str) -> bool:
        return lease.owner == host

    def divide(self, parent: Lease, host: str, position: int | None) -> None:
        """Replace the lease of a physical partition that was split by those of its children, at a position."""
        if not self._may_divide(parent.number, host):
            return
        for each in self._container.partitions.values():
            if parent.minimum <= each.minimum and each.maximum <= parent.maximum:
                self.all.setdefault(each.number, Lease(each.number, each.minimum, each.maximum, position))
        self.all.pop(parent.number, None)

    def _may_divide(self, number: int, host: str) -> bool:
        """Return True if the host still has the lease: the assumption OwnersDivide.

        The processor does not look.
        """
        current = self.all.get(number)
        return current is not None and current.owner == host

    def positions(self, keys: Any) -> Positions:
        """Return the positions of the leases, as the relay reads them."""
        found = [
            LeasePosition(
                f"{PREFIX}..{each.number}",
                each.minimum,
                each.maximum,
                each.owner,
                None if each.position is None else f'"{each.position}"',
            )
            for each in self.all.values()
        ]
        return Positions(keys, found)
