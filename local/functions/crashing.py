"""Dying at a chosen point of the way from a page of changes to its checkpoint, as by a failing machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Where a death leaves different things behind. Amid an invocation there is no point: whoever kills, waits."""

    BEFORE_INVOCATION = "before-invocation"
    """Documents were read, and handed to nobody."""
    BEFORE_CHECKPOINT = "before-checkpoint"
    """The function succeeded, and nothing tells."""
    AFTER_CHECKPOINT = "after-checkpoint"
    """All is recorded, the lease is still owned by the dead."""


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Crash:
    """Calls `die` when processing, of whichever lease, first reaches the point that is armed."""

    def __init__(self, die: Callable[[], None] = kill_this_process) -> None:
        self.armed: CrashPoint | None = None
        self._die = die

    def reached(self, point: CrashPoint) -> None:
        if point is self.armed:
            self.armed = None
            self._die()
