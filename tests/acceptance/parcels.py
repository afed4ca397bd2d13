"""A small domain for these tests: parcels, whose documents expire even if a test does not remove them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from outbox_relay.outbox import DomainEntity, DomainEvent

TTL_S = 900


@dataclass(frozen=True)
class ParcelAccepted(DomainEvent):
    destination: str


@dataclass(frozen=True)
class ParcelScanned(DomainEvent):
    step: int
    note: Any = None


@dataclass(frozen=True)
class ParcelDelivered(DomainEvent):
    receiver: str


@dataclass
class Parcel(DomainEntity):
    ttl: ClassVar[int] = TTL_S

    destination: str
    receiver: str | None = None

    def created_event(self) -> ParcelAccepted:
        return ParcelAccepted(self.destination)

    def deliver(self, receiver: str) -> None:
        self.receiver = receiver
        self.add_event(ParcelDelivered(receiver))
