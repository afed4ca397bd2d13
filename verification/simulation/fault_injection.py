"""Fault injection common to all worlds: into processes, and into their connections to services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verification.journal import entries
from verification.simulation.faults import Fault
from verification.simulation.services import Services
from verification.simulation.topic import CONDITIONS
from verification.simulation.world import Process

# Maximum number of callbacks of a process before a fault strikes that is to strike within.
_CALLBACKS = 400
_SKEW_S = 20.0


class Strikes:
    """The actions of faults. A kind of fault is a method by its name; its second argument is whom it befalls."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._world = services.world

    def _later(self, fault: Fault, act: Any, *args: Any) -> None:
        self._world.outside.after(fault.lasts_s, act, *args)

    def _during(self, fault: Fault, owner: Any, name: str, value: Any, usual: Any) -> None:
        setattr(owner, name, value)
        self._later(fault, setattr, owner, name, usual)

    def _kill(self, process: Process) -> None:
        if process.is_alive:
            self._services.journal.append(entries.Killed(at=self._services.at, by=process.name))
            process.kill()

    def _freeze(self, process: Process, fault: Fault, *, with_clock: bool = False) -> None:
        if process.is_alive and not process.is_frozen:
            process.freeze(with_clock=with_clock)
            self._services.journal.append(entries.Frozen(at=self._services.at, by=process.name))
            self._later(fault, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.is_alive:
            process.resume()
            self._services.journal.append(entries.Resumed(at=self._services.at, by=process.name))

    def _within(self, process: Process, fault: Fault, act: Callable[[], None]) -> None:
        """Act between two of the next callbacks of a process."""
        process.interrupt_after(int(fault.size * _CALLBACKS), act)

    def _set_clock(self, process: Process, fault: Fault) -> None:
        process.skew_s = _SKEW_S * (2 * fault.size - 1)

    # The kinds that are about no process of a world.

    def _down(self, fault: Fault, _: object) -> None:
        self._during(fault, self._services.lines[fault.service], "is_down", True, False)

    def _lossy(self, fault: Fault, _: object) -> None:
        self._during(fault, self._services.lines[fault.service], "loses", 0.1 + fault.size / 2, 0.0)

    def _slow(self, fault: Fault, _: object) -> None:
        self._during(fault, self._services.lines[fault.service], "slowest_s", 0.1 + 6 * fault.size, 0.02)

    def _refuse_all(self, fault: Fault, _: object) -> None:
        condition = CONDITIONS[fault.target % len(CONDITIONS)]
        self._during(fault, self._services.topic, "refuses", condition, None)

    def _busy(self, fault: Fault, _: object) -> None:
        self._during(fault, self._services.topic, "is_busy", True, False)
