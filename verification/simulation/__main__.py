"""Run simulated universes: `make simulate`. Ends with 1 if a guarantee is violated in one of them."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from verification.simulation import determinism, runner
from verification.simulation.plan import Kind, Plan, Result

# Seconds between two lines that say how far it is.
_EVERY_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    with runner.prepared(logs=options.logs):
        return sum(_run(name, seed, options) for name in options.kinds) and 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.simulation", description=__doc__)
    kinds = "; ".join(f"{name}: {about}" for name, about in runner.KINDS.items())
    parser.add_argument("--kinds", nargs="+", choices=runner.KINDS, default=list(runner.KINDS), help=kinds)
    parser.add_argument("--seed", type=int, help="the first universe; a random one if it is left out")
    parser.add_argument("--runs", type=int, help="number of universes of each kind (default: 100, or --seconds)")
    parser.add_argument("--seconds", type=float, help="processor time to run for, in all, instead of --runs")
    parser.add_argument("--events", type=int, help="of each universe (default: as many as its kind has)")
    parser.add_argument("--faults", type=int, help="of each universe (default: as many as its kind has)")
    parser.add_argument("--without", type=int, nargs="+", default=[], help="numbers of faults that are left out")
    parser.add_argument("--journal", type=Path, help="write the journal of the last universe to this file")
    parser.add_argument("--logs", action="store_true", help="show what the code logs")
    return parser


def _run(name: str, first: int, options: argparse.Namespace) -> bool:
    """Run the universes of a kind; returns whether a guarantee was violated."""
    kind = runner.kind_named(name)
    sizes = _sizes(options)
    started = shown = determinism.seconds()
    processor_s = time.process_time()
    number, virtual_s, events, excused = 0, 0.0, 0, 0
    for seed in _seeds(first, options):
        plan = kind.plan(seed, **sizes).without(options.without)
        result = runner.run(kind, plan)
        number += 1
        virtual_s += result.virtual_s
        events += plan.events
        excused += result.excused
        if options.journal:
            options.journal.parent.mkdir(parents=True, exist_ok=True)
            options.journal.write_text(result.text(), encoding="utf-8")
        if result.violations:
            _report(name, kind, plan, result, options)
            return True
        if determinism.seconds() - shown > _EVERY_S:
            shown = determinism.seconds()
            print(f"  {name}: {number:,} universes in {shown - started:.0f} s", flush=True)
    took_s = time.process_time() - processor_s
    print(
        f"{name}: {number:,} universes from seed {first} on, {events:,} events, {virtual_s / 3600:,.0f} virtual "
        f"hours: nothing is wrong. {excused} events came again beyond what is guaranteed. "
        f"{number / took_s:.1f} universes a second of processor time.",
        flush=True,
    )
    return False


def _sizes(options: argparse.Namespace) -> dict[str, int]:
    """Return the sizes of a plan that are not left to its kind."""
    return {name: size for name in ("events", "faults") if (size := getattr(options, name)) is not None}


def _seeds(first: int, options: argparse.Namespace) -> Iterator[int]:
    if options.seconds is None:
        yield from range(first, first + (options.runs or 100))
        return
    # By the processor's time: where many others use it, as many universes run.
    end = time.process_time() + options.seconds / len(options.kinds)
    for seed in count(first):
        if time.process_time() >= end:
            return
        yield seed


def _report(name: str, kind: Kind, plan: Plan, result: Result, options: argparse.Namespace) -> None:
    """Say what is wrong, how to see it again, and which faults it takes."""
    print(f"{name}: seed {plan.seed}, policy {plan.policy}:", *result.violations, sep="\n  ", flush=True)
    sizes = "".join(f" --{size} {number}" for size, number in _sizes(options).items())
    command = f"python -m verification.simulation --kinds {name} --seed {plan.seed} --runs 1{sizes}"
    print(f"To see it again:\n  {command}", flush=True)
    if options.without:
        return
    left_out = runner.shortened(kind, plan)
    if left_out:
        print(f"With fewer faults:\n  {command} --without {' '.join(map(str, left_out))}")
    print("The faults that it takes:", *plan.without(left_out).faults, sep="\n  ", flush=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # What killed processes have left must not run when the interpreter ends.
    os._exit(code)
