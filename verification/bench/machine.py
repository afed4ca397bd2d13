"""The machine that the figures were measured on, without its name, and how busy other processes kept it."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

import psutil

from local.stack.processor import machine_seconds, processor_seconds

TOO_BUSY = 0.1
"""The share of the machine's processors above which the report asks to measure again."""

OTHERS = "all others"
"""The name under which `ProcessorUse.shares` reports the other processes of the machine."""

_DISTRIBUTIONS = (
    "azure-functions",
    "azure-servicebus",
    "azure-cosmos",
    "orjson",
    "aiohttp",
    "python-qpid-proton",
)


def facts() -> dict[str, str | int | float]:
    """Return cores, memory, Python and the versions of the packages that matter."""
    found: dict[str, str | int | float] = {
        "cores": psutil.cpu_count(logical=True) or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return found | {name: metadata.version(name) for name in _DISTRIBUTIONS}


def described(found: Mapping[str, str | int | float]) -> str:
    """Describe the machine as text."""
    return f"{found['cores']} cores, {found['memory_gib']} GiB of memory, {found['system']}, {found['python']}"


def packages(found: Mapping[str, str | int | float]) -> str:
    """List the packages as text."""
    return ", ".join(f"{name} {found[name]}" for name in _DISTRIBUTIONS if name in found)


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


class ProcessorUse:
    """The share of one core that each process has used since construction."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Watch `processes`: process ids by the name under which they and their children are reported."""
        self._processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._before = {name: processor_seconds(process) for name, process in self._processes.items()}
        self._machine_before = machine_seconds()
        self._started = asyncio.get_running_loop().time()

    def shares(self) -> dict[str, float]:
        """Return the processor seconds per second: 0 to 1 for a process with one thread.

        `OTHERS` is what all other processes of the machine used. If that is much, the measurement was disturbed.
        """
        elapsed = asyncio.get_running_loop().time() - self._started
        used = {name: processor_seconds(process) - self._before[name] for name, process in self._processes.items()}
        others = max(0.0, machine_seconds() - self._machine_before - sum(used.values()))
        return {name: seconds / elapsed for name, seconds in (used | {OTHERS: others}).items()}
