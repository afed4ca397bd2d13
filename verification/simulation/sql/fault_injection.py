"""The faults of an SQL outbox's world, and what each does."""

from __future__ import annotations

from collections.abc import Callable

from verification.simulation import fault_injection
from verification.simulation.faults import Fault, Kind
from verification.simulation.sql.relays import RelayProcess
from verification.simulation.sql.services import Services

KINDS = {
    "kill-process": Kind(5, longest_s=20.0),
    "kill-process-within": Kind(6, longest_s=20.0),
    "stop": Kind(3),
    "freeze-process": Kind(4),
    # A machine can be suspended for longer than the topic's window.
    "suspend": Kind(3, longest_s=300.0),
    "cut": Kind(4, longest_s=30.0),
    "down": Kind(3, longest_s=20.0),
    "lossy": Kind(5, longest_s=30.0),
    "slow": Kind(3, longest_s=30.0),
    "end-session": Kind(4),
    "slow-statements": Kind(2, longest_s=20.0),
    "refuse-all": Kind(1, longest_s=20.0),
    "busy": Kind(1, longest_s=20.0),
    "skew": Kind(2),
    "busy-process": Kind(1, longest_s=20.0),
}
OF_CLOCK = {"clock-back": Kind(1)}
"""The kinds that few universes have: positions are ahead of the time from then on."""
SERVICES = ("topic", "database", "database", "store")

# Maximum seconds of a step of a statement while the server is slow.
_SLOW_STEP_S = 5.0

# By how much the database's clock is set back at most.
_BACK_S = 3600.0


class Strikes(fault_injection.Strikes):
    """Strikes with the faults of a plan."""

    def __init__(
        self, services: Services, working: Callable[[], list[RelayProcess]], keep: Callable[[], None]
    ) -> None:
        """`working` are the processes that work now, and `keep` starts others in place of those that do not."""
        super().__init__(services)
        self._server = services.server
        self._working = working
        self._keep = keep

    def strike(self, fault: Fault) -> None:
        """Let a fault happen, now."""
        working = self._working()
        if not working:
            # They stop, and others are started soon.
            self._world.outside.after(1.0, self.strike, fault)
            return
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault, working[fault.target % len(working)])

    # The kinds, by their names.

    def _kill_process(self, fault: Fault, relay: RelayProcess) -> None:
        self._kill(relay.process)
        self._later(fault, self._keep)

    def _kill_process_within(self, fault: Fault, relay: RelayProcess) -> None:
        def kill() -> None:
            self._kill(relay.process)
            # One that had little to do is killed long after the fault.
            self._later(fault, self._keep)

        self._within(relay.process, fault, kill)

    def _stop(self, fault: Fault, relay: RelayProcess) -> None:
        relay.stop()
        self._later(fault, self._keep)

    def _freeze_process(self, fault: Fault, relay: RelayProcess) -> None:
        self._freeze(relay.process, fault)
        self._keep()

    def _suspend(self, fault: Fault, relay: RelayProcess) -> None:
        self._freeze(relay.process, fault, with_clock=True)
        self._keep()

    def _cut(self, fault: Fault, relay: RelayProcess) -> None:
        cut, name = self._services.lines[fault.service].cut, relay.process.name
        cut.add(name)
        self._later(fault, cut.discard, name)

    def _down(self, fault: Fault, relay: object) -> None:
        super()._down(fault, relay)
        if fault.service == "database":
            self._server.end_all()

    def _end_session(self, fault: Fault, relay: RelayProcess) -> None:
        of_process = [each for each in self._server.backends.values() if each.client == relay.process.name]
        for backend in of_process[: 1 + int(fault.size * len(of_process))]:
            backend.end()

    def _slow_statements(self, fault: Fault, relay: RelayProcess) -> None:
        self._during(fault, self._server, "slowest_s", _SLOW_STEP_S * fault.size, 0.002)

    def _clock_back(self, fault: Fault, relay: RelayProcess) -> None:
        self._server.tables.set_clock_back(int(_BACK_S * fault.size * 1000))

    def _skew(self, fault: Fault, relay: RelayProcess) -> None:
        self._set_clock(relay.process, fault)

    def _busy_process(self, fault: Fault, relay: RelayProcess) -> None:
        self._during(fault, relay.process, "pause_s", fault.size, 0.0)
