"""How long this process owns a shard that it has claimed."""

from __future__ import annotations

import time

# An owner stops before another process may take over: its claim lasts longer for those who watch.
_SHARE = 0.8

# The monotonic clock of some systems stands still while the machine is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC) if hasattr(time, "clock_gettime") else None


def now() -> tuple[float, float]:
    """The time on two clocks: one that never steps, and the wall's, which goes on while a machine is paused."""
    steady = time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
    return steady, time.time()


class Ownership:
    """Whether the claim on one shard still holds, as far as its owner can tell without asking."""

    def __init__(self, claim_s: float, since: tuple[float, float]) -> None:
        """`since` is `now()` before the claim was asked for."""
        self._lasts_s = claim_s * _SHARE
        self._renewed = since
        self._ended = False

    def renewed(self, since: tuple[float, float]) -> None:
        """The claim was renewed by a request that began at `since`."""
        self._renewed = max(self._renewed, since)

    def end(self) -> None:
        """Another process has the shard."""
        self._ended = True

    def holds(self) -> bool:
        """Whether no other process can have taken over yet."""
        if self._ended:
            return False
        steady, wall = now()
        # A wall clock that is set forward ends it early, which is harmless; one set back changes nothing.
        return max(steady - self._renewed[0], wall - self._renewed[1]) < self._lasts_s
