"""Where a connection is in its handshake, and the faults that silence it there.

The protocol engine answers each frame by itself, so a silent peer is made before it: the frames that come in are
held back, and nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outbox_relay.emulators.faults import Faults
from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.fault_plans import FaultKind, FaultPlan, Step
from outbox_relay.emulators.servicebus.frames import ATTACH, BEGIN, OPEN, TRANSFER, DeliveryTracker, performative
from outbox_relay.emulators.servicebus.link_table import LinkTable
from outbox_relay.emulators.servicebus.namespace import CBS, path_of
from outbox_relay.emulators.servicebus.sasl import Sasl

_ROLE, _SOURCE, _TARGET = 2, 5, 6
_STEPS = {OPEN: Step.OPEN, BEGIN: Step.BEGIN}
BEFORE_OPEN = frozenset({Step.ACCEPT, Step.SASL, Step.OPEN})
"""Steps at which the client has not been answered its open: no AMQP frame may be sent."""


@dataclass(slots=True)
class Held:
    """Input that arrived while a connection is not read: the frame to handle first, and the bytes after it."""

    first: bytes
    rest: bytearray = field(default_factory=bytearray)
    mute: bool = True


class Handshake:
    """Finds the faults that silence one connection."""

    def __init__(self, faults: Faults[FaultPlan], deliveries: DeliveryTracker, links: LinkTable) -> None:
        self._faults = faults
        self._deliveries = deliveries
        self._links = links

    def silenced_at_once(self) -> FaultPlan | None:
        """Return the fault that silences a connection as it is accepted."""
        return self._find(Step.ACCEPT)

    def silenced_by(self, frame: bytes) -> FaultPlan | None:
        """Return the fault that leaves this frame, and all that follows, without an answer."""
        if Sasl.concerns(frame):
            return self._find(Step.SASL)
        found = performative(frame)
        if found is None:
            return None
        if found.code in _STEPS:
            return self._find(_STEPS[found.code])
        try:
            if found.code == ATTACH:
                path = _address(list(codec.items(frame, found.fields_at)))
                return self._find(Step.CBS_ATTACH) if path == CBS else self._find(Step.ATTACH, path)
        except (*codec.DECODE_ERRORS, LookupError):
            return None
        if found.code == TRANSFER:
            transfer = self._deliveries.look_ahead(frame, found)
            if transfer is not None and transfer.begins and transfer.link in self._cbs_links():
                return self._find(Step.PUT_TOKEN)
        return None

    def _cbs_links(self) -> set[str]:
        return {link.name for link, endpoint in self._links.items() if endpoint.node == CBS and link.is_receiver}

    def _find(self, step: Step, path: str | None = None) -> FaultPlan | None:
        fault = self._faults.apply(
            lambda plan: (
                plan.kind is FaultKind.SILENT_HANDSHAKE
                and plan.step is step
                and (path is None or plan.covers(path))
            )
        )
        return None if fault is None else fault.plan


def _address(fields: list[bytes]) -> str:
    sends = codec.decode(fields[_ROLE])[0] is False
    terminus = codec.decode(fields[_TARGET if sends else _SOURCE])[0]
    return path_of(str(terminus[0]))
