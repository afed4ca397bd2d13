"""How busy the machine was with what is not measured: a figure from a busy machine is to be taken with care."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

TOO_BUSY = 0.1
"""The share of the machine's processors above which the report says so."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds since the machine started, or this process did; and a moment."""

    machine: float
    own: float
    moment: float

    @classmethod
    def now(cls) -> Usage:
        """As it is. Children count as this process's own once they have ended."""
        machine = psutil.cpu_times()
        times = os.times()
        return cls(
            sum(machine) - machine.idle - getattr(machine, "iowait", 0.0),
            times.user + times.system + times.children_user + times.children_system,
            time.monotonic(),
        )

    def others_share(self, since: Usage) -> float:
        """The share of all processors, 0 to 1, that went to other processes meanwhile."""
        available = (self.moment - since.moment) * (psutil.cpu_count() or 1)
        others = (self.machine - since.machine) - (self.own - since.own)
        return min(1.0, max(0.0, others / available)) if available > 0 else 0.0
