"""Run one universe and write its trace and its journal to a file, perhaps on a machine that disturbs it.

`python -m tests.simulation.traced KIND SEED EVENTS FAULTS FILE [--disturbed]`
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Rounds between two disturbances, and between two collections of garbage.
_EVERY, _COLLECT_EVERY = 10, 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    for name in ("seed", "events", "faults"):
        parser.add_argument(name, type=int)
    parser.add_argument("file", type=Path)
    parser.add_argument("--disturbed", action="store_true")
    options = parser.parse_args()
    if options.disturbed:
        _let_clocks_jump()
    from verification.simulation import runner
    from verification.simulation.world import Process, World

    trace: list[str] = []
    disturb = _disturber() if options.disturbed else lambda _: None
    run = World._run

    def traced(world: World, process: Process) -> None:
        trace.append(f"{world.now!r} {process.name} {len(process.loop.ready)}\n")
        disturb(len(trace))
        run(world, process)

    setattr(World, "_run", traced)  # noqa: B010 - what a method is replaced by has other names of arguments
    kind = runner.kind_named(options.kind)
    with runner.prepared():
        if options.disturbed:
            runner.run(kind, kind.plan(options.seed + 1, options.events, options.faults))
            trace.clear()
        result = runner.run(kind, kind.plan(options.seed, options.events, options.faults))
    options.file.write_text("".join(trace) + result.text(), encoding="utf-8")


def _let_clocks_jump() -> None:
    """Let the machine's clocks go on by another time at each call, and be far from where they were."""
    steps = random.Random(1)

    def replace(name: str) -> None:
        now: float = getattr(time, name)() + 1e6

        def read() -> float:
            nonlocal now
            now += steps.choice((0.0, 0.001, 3.0, 500.0))
            return now

        setattr(time, name, read)
        setattr(time, f"{name}_ns", lambda: int(read() * 1e9))

    for name in ("time", "monotonic", "perf_counter", "process_time"):
        replace(name)


def _disturber() -> Callable[[int], None]:
    """Return what lets another thread use clocks and randomness at times, and collects garbage."""
    other = ThreadPoolExecutor(1)
    # Its thread begins before the universe does.
    other.submit(_use).result()

    def disturb(number: int) -> None:
        if not number % _EVERY:
            other.submit(_use).result()
        if not number % _COLLECT_EVERY:
            gc.collect()

    return disturb


def _use() -> None:
    time.time(), time.monotonic(), random.random(), random.Random().random(), uuid.uuid4(), os.urandom(1)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # What killed processes have left must not run when the interpreter ends.
    os._exit(0)
