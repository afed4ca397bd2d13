"""The processor time that the parts of the demo use, and the memory of the relay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

import psutil

from local.stack.processor import machine_seconds, processor_seconds
from local.stack.supervisor import Stack

RELAY, EMULATORS, CLIENTS, OTHERS = "relay", "emulators", "writers and consumer", "other programs"

Seconds = Mapping[tuple[str, int], float]
"""Processor seconds by part and process id; under OTHERS, those of the whole machine."""


def used_so_far(stack: Stack, *services: int) -> Seconds:
    """Return the processor seconds of the stack and of this process.

    Args:
        stack: The stack.
        services: Process ids of what the writers use, beside this process.
    """
    found = {(OTHERS, 0): machine_seconds()}
    for part, pid in _processes(stack, services):
        with suppress(psutil.NoSuchProcess):
            found[part, pid] = processor_seconds(psutil.Process(pid))
    return found


def resident_bytes(stack: Stack) -> int:
    """Return the resident size of the relay's processes."""
    total = 0
    for host in stack.hosts:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(host.pid)
            total += sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))
    return total


def _processes(stack: Stack, services: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    yield from ((RELAY, host.pid) for host in stack.hosts)
    yield from ((EMULATORS, part.pid) for part in (stack.outbox, stack.servicebus))
    yield from ((CLIENTS, pid) for pid in (os.getpid(), *services))


def shares(before: Seconds, after: Seconds, wall_s: float) -> dict[str, float]:
    """Return the share of all cores that each part used in `wall_s` seconds, from 0 to 1.

    A host that was started meanwhile counts from its start; one that was killed counts among other programs.
    """
    whole = wall_s * (os.cpu_count() or 1)
    parts = dict.fromkeys((RELAY, EMULATORS, CLIENTS, OTHERS), 0.0)
    for (part, pid), seconds in after.items():
        parts[part] += (seconds - before.get((part, pid), 0.0)) / whole
    machine = parts.pop(OTHERS)
    return parts | {OTHERS: max(0.0, machine - sum(parts.values()))}
