"""The writers of a world, and the faults they suffer."""

from __future__ import annotations

from typing import Any

from verification.journal.entries import Entry, Frozen, Killed, Resumed
from verification.simulation.channel import RpcChannel
from verification.simulation.faults import Fault, Kind
from verification.simulation.world import Process, World
from verification.simulation.writing.documents import Commit, Documents
from verification.simulation.writing.promises import Promises
from verification.simulation.writing.sdk import SimulatedContainer
from verification.simulation.writing.writer import Writer

KINDS = {
    "kill-writer": Kind(3),
    "kill-writer-within": Kind(5),
    "freeze-writer": Kind(3),
    "cut-writer": Kind(2),
    "lose-writes": Kind(8),
    "slow-writes": Kind(5),
    "throttle-writes": Kind(2),
    "unavailable-writes": Kind(4),
    "lag-replicas": Kind(5),
}
"""The faults of writers."""

_WRITERS = 4
# The share of accounts with session consistency.
_SESSION = 0.7
_CALLBACKS = 100
_RESTART_S = 3.0
_USUAL_S = 0.02


class Writers:
    """All writers.

    Attributes:
        documents: The container that they write.
        promises: What they were told.
    """

    def __init__(self, world: World, journal: list[Entry], commit: Commit) -> None:
        """`commit` is called with the partition key and the documents of each batch that is applied."""
        self.world = world
        self.documents = Documents(world.entropy, commit)
        self.promises = Promises(self.documents)
        self._journal = journal
        self._line = RpcChannel(world, "documents", timeout_s=2.0)
        self._keeps_tokens = world.entropy.random() < _SESSION
        self._working: list[Writer] = []
        self._made = 0
        self._is_over = False
        self.keep()

    def keep(self) -> None:
        """Start processes in the place of those that were killed."""
        self._working = [each for each in self._working if each.process.is_alive]
        while len(self._working) < _WRITERS and not self._is_over:
            self._made += 1
            name = f"writer-{self._made}"
            container = SimulatedContainer(self._line, self.documents, keeps_tokens=self._keeps_tokens)
            self._working.append(Writer(self.world, container, self.promises, name))

    def stop(self) -> None:
        """Let the writers finish what they are at."""
        self._is_over = True
        for writer in self._working:
            writer.is_over = True

    # Faults.

    def strike(self, fault: Fault) -> bool:
        """Let a fault of writers happen; return False if it is another one."""
        if fault.kind not in KINDS:
            return False
        working = [each for each in self._working if each.process.is_alive]
        if working:
            act = getattr(self, "_" + fault.kind.replace("-", "_"))
            act(fault, working[fault.target % len(working)].process)
        return True

    def _kill(self, process: Process) -> None:
        if process.is_alive:
            self._journal.append(Killed(at=round(self.world.now, 6), by=process.name))
            process.kill()
            self.world.outside.after(_RESTART_S, self.keep)

    def _kill_writer(self, fault: Fault, process: Process) -> None:
        self._kill(process)

    def _kill_writer_within(self, fault: Fault, process: Process) -> None:
        process.interrupt_after(int(fault.size * _CALLBACKS), lambda: self._kill(process))

    def _freeze_writer(self, fault: Fault, process: Process) -> None:
        if not process.is_frozen:
            process.freeze()
            self._journal.append(Frozen(at=round(self.world.now, 6), by=process.name))
            self.world.outside.after(fault.lasts_s, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.is_alive:
            process.resume()
            self._journal.append(Resumed(at=round(self.world.now, 6), by=process.name))

    def _cut_writer(self, fault: Fault, process: Process) -> None:
        self._line.cut.add(process.name)
        self.world.outside.after(fault.lasts_s, self._line.cut.discard, process.name)

    def _lose_writes(self, fault: Fault, process: Process) -> None:
        self._during(fault, self._line, "loses", 0.1 + fault.size / 2, 0.0)

    def _slow_writes(self, fault: Fault, process: Process) -> None:
        self._during(fault, self._line, "slowest_s", 0.1 + 6 * fault.size, _USUAL_S)

    def _throttle_writes(self, fault: Fault, process: Process) -> None:
        self._during(fault, self.documents, "is_throttled", True, False)

    def _unavailable_writes(self, fault: Fault, process: Process) -> None:
        self._during(fault, self.documents, "is_unavailable", True, False)

    def _lag_replicas(self, fault: Fault, process: Process) -> None:
        self._during(fault, self.documents, "lag", 0.2 + 0.8 * fault.size, 0.0)

    def _during(self, fault: Fault, owner: Any, name: str, value: Any, usual: Any) -> None:
        setattr(owner, name, value)
        self.world.outside.after(fault.lasts_s, setattr, owner, name, usual)
