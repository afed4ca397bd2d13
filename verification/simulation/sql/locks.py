"""Locks of the database: whoever asks waits in turn, for as long as it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from verification.simulation.world import Process

Act = Callable[[], None]


@dataclass(slots=True)
class Lock:
    """A lock of a row. Who has it, and who waits, is named by any object."""

    outside: Process
    holder: object | None = None
    waiting: list[tuple[object, Act]] = field(default_factory=list)

    def acquire(self, who: object, granted: Act, timeout_s: float | None = None, late: Act = lambda: None) -> None:
        """Call `granted` once `who` has it; or `late`, if that takes longer than `timeout_s`."""
        if self.holder is None:
            self.holder = who
            granted()
            return
        ticket = (who, granted)
        self.waiting.append(ticket)

        def give_up() -> None:
            if ticket in self.waiting:
                self.waiting.remove(ticket)
                late()

        if timeout_s is not None:
            self.outside.after(timeout_s, give_up)

    def release(self, who: object) -> None:
        """Give it back, or stop waiting for it."""
        self.waiting = [each for each in self.waiting if each[0] is not who]
        if self.holder is not who:
            return
        self.holder = None
        if self.waiting:
            self.holder, granted = self.waiting.pop(0)
            granted()
