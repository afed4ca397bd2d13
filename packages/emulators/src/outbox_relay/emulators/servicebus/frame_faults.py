"""Faults that cut or stall a connection as a frame comes in, before the protocol engine sees the frame."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.fault_plans import Direction, FaultPlan
from outbox_relay.emulators.servicebus.frames import (
    DISPOSITION,
    TRANSFER,
    DeliveryTracker,
    Performative,
    performative,
)
from outbox_relay.emulators.servicebus.link_table import LinkTable
from outbox_relay.emulators.servicebus.role import Role


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a frame is taken in before the connection is cut, in bytes; whether the cut is a TCP reset."""

    taken: int
    reset: bool


class FrameFaults:
    """Looks at the frames of one connection while faults are pending."""

    def __init__(self, deliveries: DeliveryTracker, links: LinkTable) -> None:
        self._deliveries = deliveries
        self._links = links

    def find_cut(self, frame: bytes) -> Cut | None:
        """Return where in this frame the connection is to be cut, if it is."""
        found = performative(frame)
        if found is None:
            return None
        if found.code == TRANSFER:
            return self._in_transfer(frame, found)
        if found.code == DISPOSITION and _is_receivers(frame, found):
            return _in_the_middle(frame, self._plan_for_disposition())
        return None

    def find_stall(self, frame: bytes) -> FaultPlan | None:
        """Return the fault that reads no further after this frame, the first of several of a transfer."""
        found = performative(frame)
        if found is None or found.code != TRANSFER:
            return None
        transfer = self._deliveries.look_ahead(frame, found)
        if transfer is None or transfer.ends or not transfer.begins:
            return None
        for link, endpoint in self._links.items():
            if endpoint.role is Role.SENDER and endpoint.faults is not None and link.name == transfer.link:
                return endpoint.faults.stall_transfer()
        return None

    def _in_transfer(self, frame: bytes, found: Performative) -> Cut | None:
        transfer = self._deliveries.look_ahead(frame, found)
        if transfer is None:
            return None
        for link, endpoint in self._links.items():
            if endpoint.role is not Role.SENDER or endpoint.faults is None or link.name != transfer.link:
                continue
            if transfer.begins and (plan := endpoint.faults.cut_before_transfer()):
                return Cut(0, plan.reset)
            if transfer.ends:
                return _in_the_middle(frame, endpoint.faults.cut_mid_frame(Direction.IN))
        return None

    def _plan_for_disposition(self) -> FaultPlan | None:
        for endpoint in self._links.endpoints():
            if endpoint.role is Role.RECEIVER and endpoint.faults is not None:
                plan = endpoint.faults.cut_mid_frame(Direction.IN)
                if plan is not None:
                    return plan
        return None


def _in_the_middle(frame: bytes, plan: FaultPlan | None) -> Cut | None:
    return None if plan is None else Cut(len(frame) // 2, plan.reset)


def _is_receivers(frame: bytes, found: Performative) -> bool:
    """Return whether a disposition is that of a receiver: its first field, the role, is true."""
    try:
        return codec.decode(next(codec.items(frame, found.fields_at)))[0] is True
    except (*codec.DECODE_ERRORS, StopIteration):
        return False
