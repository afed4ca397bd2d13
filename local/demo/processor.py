"""The processor time that the parts of the demo use."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from local.stack.supervisor import Stack


def used_s(pids: Collection[int]) -> float:
    """Return the processor time of processes and all that they have started, in seconds. Ended ones count 0."""
    total = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    times = each.cpu_times()
                    total += times.user + times.system
    return total


def snapshot(stack: Stack, *writers: int) -> dict[str, float]:
    """Return the seconds that the relay, the services and the demo itself have used so far.

    Args:
        stack: The stack.
        writers: Process ids of writers outside of this process.
    """
    own = psutil.Process().cpu_times()
    return {
        "relay": used_s([host.pid for host in stack.hosts]),
        "emulators": used_s([stack.outbox.pid, stack.servicebus.pid]),
        "writers and consumer": own.user + own.system + used_s(writers),
    }


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of all cores that each part used during the run, from 0 to 1."""

    parts: Mapping[str, float]

    @classmethod
    def between(cls, before: Mapping[str, float], after: Mapping[str, float], wall_s: float) -> Shares:
        """Return the shares of a run. A host that was replaced counts from its start."""
        whole = wall_s * (os.cpu_count() or 1)
        return cls({name: max(0.0, after[name] - before[name]) / whole for name in before})

    @property
    def total(self) -> float:
        """The share that all parts used together."""
        return sum(self.parts.values())
