"""Faults that strike frames as they come in, before the protocol engine sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox_emulators.servicebus import codec
from outbox_emulators.servicebus.fault_plans import Direction, FaultPlan, Role
from outbox_emulators.servicebus.frames import DISPOSITION, TRANSFER, DeliveryTracker, Performative, performative

if TYPE_CHECKING:
    from proton import Link

    from outbox_emulators.servicebus.links import LinkEndpoint

Endpoints = Callable[[], Iterable[tuple["Link", "LinkEndpoint"]]]


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a frame is taken in before the connection is cut, in bytes; whether the cut is a TCP reset."""

    taken: int
    reset: bool


class FrameStrikes:
    """Looks at the frames of one connection while faults are pending."""

    def __init__(self, deliveries: DeliveryTracker, endpoints: Endpoints) -> None:
        self._deliveries = deliveries
        self._endpoints = endpoints

    def find(self, frame: bytes) -> Cut | None:
        """Return where in this frame the connection is to be cut, if it is."""
        found = performative(frame)
        if found is None:
            return None
        if found.code == TRANSFER:
            return self._transfer(frame, found)
        if found.code == DISPOSITION and _is_receivers(frame, found):
            return _middle(frame, self._disposition())
        return None

    def _transfer(self, frame: bytes, found: Performative) -> Cut | None:
        transfer = self._deliveries.look_ahead(frame, found)
        if transfer is None:
            return None
        for link, endpoint in self._endpoints():
            if endpoint.role is not Role.SENDER or endpoint.strikes is None or link.name != transfer.link:
                continue
            if transfer.begins and (plan := endpoint.strikes.cuts_before()):
                return Cut(0, plan.reset)
            if transfer.ends:
                return _middle(frame, endpoint.strikes.breaks_off(Direction.IN))
        return None

    def _disposition(self) -> FaultPlan | None:
        for _, endpoint in self._endpoints():
            if endpoint.role is Role.RECEIVER and endpoint.strikes is not None:
                plan = endpoint.strikes.breaks_off(Direction.IN)
                if plan is not None:
                    return plan
        return None


def _middle(frame: bytes, plan: FaultPlan | None) -> Cut | None:
    return None if plan is None else Cut(len(frame) // 2, plan.reset)


def _is_receivers(frame: bytes, found: Performative) -> bool:
    """Tell whether a disposition is that of a receiver: its first field, the role, is true."""
    try:
        return codec.decode(next(codec.items(frame, found.fields_at)))[0] is True
    except (*codec.DECODE_ERRORS, StopIteration):
        return False
