"""Killing the host or the worker, at once or at a point between a page of changes and its checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from enum import StrEnum


class CrashPoint(StrEnum):
    """Points at which a crash leaves different state behind. For one within an invocation, kill while it runs."""

    BEFORE_INVOCATION = "before-invocation"
    """Documents were read, and the function not called."""
    BEFORE_CHECKPOINT = "before-checkpoint"
    """The function succeeded, and nothing records it."""
    AFTER_CHECKPOINT = "after-checkpoint"
    """The checkpoint is written, and the lease still owned by the killed host."""


class Victim(StrEnum):
    """The processes to kill."""

    MACHINE = "machine"
    """Host and worker, as in a power failure."""
    HOST = "host"
    """Only the host: the worker finishes its invocations."""
    WORKER = "worker"
    """Only the worker: the host notices at once, and starts another."""


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Crash:
    """Kills a victim by the function that `killers` has for it."""

    def __init__(self, killers: Mapping[Victim, Callable[[], None]]) -> None:
        self._killers = killers
        self._armed: tuple[CrashPoint, Victim] | None = None

    def arm(self, point: CrashPoint, victim: Victim = Victim.MACHINE) -> None:
        """Kill the victim when the processing of any lease next reaches that point."""
        self._armed = point, victim

    def disarm(self) -> None:
        self._armed = None

    def kill(self, victim: Victim) -> None:
        """Kill the victim now."""
        self._killers[victim]()

    def reached(self, point: CrashPoint) -> None:
        if self._armed is not None and self._armed[0] is point:
            victim = self._armed[1]
            self._armed = None
            self.kill(victim)
