"""How busy the machine was with other processes: figures from a busy machine are unreliable."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

TOO_BUSY = 0.1
"""The share of the machine's processors above which the report asks to measure again."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds of the machine and of this process, and when they were read."""

    machine: float
    own: float
    moment: float

    @classmethod
    def now(cls) -> Usage:
        """Return the current values. Children count as this process's own once they have ended."""
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return cls(machine_seconds(), own, time.monotonic())

    def others_share(self, since: Usage) -> float:
        """Return the share of all processors, 0 to 1, that other processes used since then."""
        available = (self.moment - since.moment) * (psutil.cpu_count() or 1)
        others = (self.machine - since.machine) - (self.own - since.own)
        return min(1.0, max(0.0, others / available)) if available > 0 else 0.0


def machine_seconds() -> float:
    """Busy seconds of all processors since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
