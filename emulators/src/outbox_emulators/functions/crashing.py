"""Dying: at once, or at a chosen point of the way from a page of changes to its checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from enum import StrEnum


class CrashPoint(StrEnum):
    """Where a death leaves different things behind. Amid an invocation there is no point: whoever kills, waits."""

    BEFORE_INVOCATION = "before-invocation"
    """Documents were read, and handed to nobody."""
    BEFORE_CHECKPOINT = "before-checkpoint"
    """The function succeeded, and nothing tells."""
    AFTER_CHECKPOINT = "after-checkpoint"
    """All is recorded, the lease is still owned by the dead."""


class Victim(StrEnum):
    """Who dies."""

    MACHINE = "machine"
    """Host and worker, as when power fails."""
    HOST = "host"
    """The host alone: the worker finishes what it has."""
    WORKER = "worker"
    """The worker alone: the host notices at once, and starts another."""


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Crash:
    """Kills whom `killers` know how to kill."""

    def __init__(self, killers: Mapping[Victim, Callable[[], None]]) -> None:
        self._killers = killers
        self._armed: tuple[CrashPoint, Victim] | None = None

    def arm(self, point: CrashPoint, victim: Victim = Victim.MACHINE) -> None:
        """Have the victim die when processing, of whichever lease, first reaches that point."""
        self._armed = point, victim

    def disarm(self) -> None:
        self._armed = None

    def strike(self, victim: Victim) -> None:
        """Have the victim die now."""
        self._killers[victim]()

    def reached(self, point: CrashPoint) -> None:
        if self._armed is not None and self._armed[0] is point:
            victim = self._armed[1]
            self._armed = None
            self.strike(victim)
