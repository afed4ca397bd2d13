"""The faults of the wire's world, and what each does."""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.emulators.servicebus.fault_plans import FaultKind
from verification.simulation.core import fault_injection
from verification.simulation.faults import Fault, Kind
from verification.simulation.topic import CONDITIONS
from verification.simulation.wire.host import Host
from verification.simulation.wire.services import DATABASE, Services

KINDS = fault_injection.KINDS | {
    # Longer than the topic's window; each virtual second costs the requests of all hosts.
    "suspend": Kind(3, longest_s=700.0),
    "merge": Kind(1),
    "restart": Kind(2),
    "lose-answers": Kind(3),
}
SERVICES = ("topic", "account")

_PARTITIONS = 4
_ANSWERS = 20


class Strikes(fault_injection.Strikes):
    """Strikes with the faults of a plan."""

    def __init__(self, services: Services, working: Callable[[], list[Host]], keep: Callable[[], None]) -> None:
        """`working` are the hosts that work now, and `keep` starts others in place of those that do not."""
        super().__init__(services, working, keep)  # type: ignore[arg-type]
        self._wire = services

    def _suspend(self, fault: Fault, host: Host) -> None:  # type: ignore[override]
        """Suspend the machine: what is sent to it gets no answer."""
        names = {host.process.name, host.worker.process.name}
        for way in self._wire.lines.values():
            way.cut |= names
            self._later(fault, way.cut.difference_update, names)
        super()._suspend(fault, host)  # type: ignore[arg-type]

    def _restart(self, fault: Fault, host: Host) -> None:
        """Restart the service: it ends all connections, and refuses others for a while."""
        port = self._wire.ports[fault.service]
        self._during(fault, port, "refuses", True, False)
        self._world.network.reset(port)  # type: ignore[attr-defined]

    def _lose_answers(self, fault: Fault, host: Host) -> None:
        """Let the topic accept transfers, and end their connections instead of an answer."""
        self._wire.inject(
            FaultKind.CUT_AFTER_TRANSFER, count=1 + int(fault.size * _ANSWERS), reset=fault.size < 0.5
        )

    def _refuse_all(self, fault: Fault, host: Host) -> None:  # type: ignore[override]
        self._wire.refuse(CONDITIONS[fault.target % len(CONDITIONS)], for_ms=int(fault.lasts_s * 1000) + 1)

    def _busy(self, fault: Fault, host: Host) -> None:  # type: ignore[override]
        self._wire.inject(FaultKind.SERVER_BUSY, for_ms=int(fault.lasts_s * 1000) + 1)

    def _split(self, fault: Fault, host: Host) -> None:  # type: ignore[override]
        partitions = self._wire.partitions
        if len(partitions) < _PARTITIONS and not self._has_old_leases:
            chosen = partitions[fault.target % len(partitions)]
            self._wire.gateway.account.split(DATABASE, "data", chosen.id)

    def _merge(self, fault: Fault, host: Host) -> None:
        partitions = self._wire.partitions
        if len(partitions) > 1 and not self._has_old_leases:
            first = fault.target % (len(partitions) - 1)
            pair = [each.id for each in partitions[first : first + 2]]
            self._wire.gateway.account.merge(DATABASE, "data", pair)

    @property
    def _has_old_leases(self) -> bool:
        """True while the processors have not noticed a split or merge.

        Until they have, there is no other one: the assumption OldLeasesGo.
        """
        tokens = {lease.rpartition("..")[2] for lease in self._wire.watch.leases}
        return any(each.isdecimal() for each in tokens - {each.id for each in self._wire.partitions})

    def _steal(self, fault: Fault, host: Host) -> None:  # type: ignore[override]
        host.steal(fault.target)
