"""Processor time of processes and of the machine."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of the process and its descendants, as a Functions host has a worker.

    Of this process, returns its own alone. A process that has ended counts 0.
    """
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        descendants = [] if process.pid == os.getpid() else process.children(recursive=True)
        for each in (process, *descendants):
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                seconds += times.user + times.system
    return seconds


def machine_seconds() -> float:
    """Return the busy seconds of all processors since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
