"""Time that a test controls."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class ManualClock:
    """Time that passes only when `advance` is called: the `clock` of `cosmos_account`.

    Attributes:
        now: Seconds since 1970; the system's time at first.
    """

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass."""
        self.now += seconds
