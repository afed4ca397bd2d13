"""The orders that writers write. Each version says who has written it and upon which version."""

from __future__ import annotations

from dataclasses import dataclass

from outbox import DomainEntity, DomainEvent


@dataclass(frozen=True)
class OrderPlaced(DomainEvent):
    stamp: str


@dataclass(frozen=True)
class OrderChanged(DomainEvent):
    stamp: str
    line: int


class OrderWithdrawn(DomainEvent):
    pass


@dataclass
class Order(DomainEntity):
    """An order.

    Attributes:
        stamp: Names the commit that has written this version.
        basis: The stamp of the version that it was read in; None for a new one, or if any version may be replaced.
    """

    stamp: str
    basis: str | None = None

    def created_event(self) -> OrderPlaced:
        return OrderPlaced(self.stamp)

    def deleted_event(self) -> OrderWithdrawn:
        return OrderWithdrawn()

    def change(self, stamp: str, basis: str | None, events: int) -> None:
        """Become another version, with some events."""
        self.stamp, self.basis = stamp, basis
        for line in range(events):
            self.add_event(OrderChanged(stamp, line))
