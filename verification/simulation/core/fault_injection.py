"""The faults of the core's world, and what each does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation import fault_injection
from verification.simulation.core.host import Host
from verification.simulation.core.services import Services
from verification.simulation.faults import Fault, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = {
    "kill-worker": Kind(4),
    "kill-worker-within": Kind(6),
    "kill-host": Kind(3),
    "freeze-worker": Kind(3),
    # A machine can be suspended for longer than the topic's window.
    "suspend": Kind(3, longest_s=1500.0),
    "suspend-within": Kind(3, longest_s=1500.0),
    "cut": Kind(3),
    "down": Kind(3),
    "lossy": Kind(5),
    "slow": Kind(2),
    "refuse-all": Kind(2),
    "busy": Kind(1),
    "skew": Kind(2),
    "split": Kind(2),
    "steal": Kind(4),
    "busy-worker": Kind(1),
}
SERVICES = ("topic", "container", "leases", "store")

# More physical partitions than this make leases that say little.
_PARTITIONS = 4


class Strikes(fault_injection.Strikes):
    """Strikes with the faults of a plan."""

    def __init__(self, services: Services, working: Callable[[], list[Host]], keep: Callable[[], None]) -> None:
        """`working` are the hosts that work now, and `keep` starts others in place of those that do not."""
        super().__init__(services)
        self._core = services
        self._working = working
        self._keep = keep

    def strike(self, fault: Fault) -> None:
        """Let a fault happen, now."""
        hosts = self._working()
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault, hosts[fault.target % len(hosts)])

    # The kinds, by their names.

    def _kill_worker(self, fault: Fault, host: Host) -> None:
        self._kill(host.worker.process)

    def _kill_worker_within(self, fault: Fault, host: Host) -> None:
        process = host.worker.process
        self._within(process, fault, lambda: self._kill(process))

    def _kill_host(self, fault: Fault, host: Host) -> None:
        self._kill(host.process)
        if fault.size < 0.5:
            # Else it lives on, and publishes what it has.
            self._kill(host.worker.process)
        self._world.outside.after(fault.lasts_s / 10, self._keep)

    def _freeze_worker(self, fault: Fault, host: Host) -> None:
        self._freeze(host.worker.process, fault)

    def _suspend(self, fault: Fault, host: Host) -> None:
        # The clock that does not step stands still in a virtual machine, and goes on under SIGSTOP.
        with_clock = fault.target % 2 == 0
        self._freeze(host.process, fault, with_clock=with_clock)
        self._freeze(host.worker.process, fault, with_clock=with_clock)
        # Later, as this may be between two callbacks of a process that the world is about to forget.
        self._world.outside.after(0.0, self._keep)

    def _suspend_within(self, fault: Fault, host: Host) -> None:
        self._within(host.worker.process, fault, lambda: self._suspend(fault, host))

    def _cut(self, fault: Fault, host: Host) -> None:
        line = self._services.lines[fault.service]
        names = {host.process.name, host.worker.process.name}
        line.cut |= names
        self._later(fault, line.cut.difference_update, names)

    def _skew(self, fault: Fault, host: Host) -> None:
        for process in (host.process, host.worker.process):
            self._set_clock(process, fault)

    def _split(self, fault: Fault, host: Host) -> None:
        partitions = list(self._core.container.partitions)
        if len(partitions) < _PARTITIONS:
            self._core.container.split(partitions[fault.target % len(partitions)])

    def _steal(self, fault: Fault, host: Host) -> None:
        leases = list(self._core.leases.all.values())
        self._core.leases.change(leases[fault.target % len(leases)], owner=None)

    def _busy_worker(self, fault: Fault, host: Host) -> None:
        self._during(fault, host.worker.process, "pause_s", fault.size, 0.0)
