"""Changes the code in small ways, one at a time, and reports which changes no test detects.

    python -m tests.mutants                               every mutant of every file (hours)
    python -m tests.mutants --only relay/servicebus/key_sender.py          those of some files
    python -m tests.mutants --sample 200 --seed 1         a sample, drawn from a seed

Survivors are printed as they are found, and mutants on which the tests did not end in time: a busy machine makes
more of those. The last line is JSON: how many mutants were killed, timed out, survived and are equivalent
(`tests/mutants/equivalent.toml`), in all and by file. Exit code 1: under 97 % of those not equivalent were killed
or timed out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.runner import BrokenError, Workbench
from tests.mutants.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
BAR = 0.97
OUTCOMES = ("killed", "timed_out", "survived", "equivalent")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One entry of equivalent.toml."""

    path: str
    was: str
    becomes: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        return (
            self.path in ("*", mutant.path)
            and re.fullmatch(self.was, mutant.was) is not None
            and re.fullmatch(self.becomes, mutant.becomes) is not None
        )


def main() -> int:
    arguments = _arguments()
    equivalents = _equivalents()
    counts: dict[str, Counter[str]] = {}
    broken: list[str] = []
    with Workbench(ROOT) as workbench:
        for path, mutants in _chosen(arguments):
            try:
                counts[path] = _try_all(workbench, mutants, equivalents)
            except BrokenError as error:
                print(error, flush=True)
                broken.append(path)
    return _report(counts, broken)


def _chosen(arguments: argparse.Namespace) -> Iterator[tuple[str, list[Mutant]]]:
    """The mutants to try, by file."""
    files = ((path, mutants_of(ROOT, path)) for path in arguments.only or TARGETS)
    if arguments.sample is not None:
        listed = list(files)
        every = [mutant for _, mutants in listed for mutant in mutants]
        drawn = random.Random(f"{arguments.seed}:mutants").sample(every, min(arguments.sample, len(every)))
        files = ((path, [mutant for mutant in mutants if mutant in drawn]) for path, mutants in listed)
    for path, mutants in files:
        tried = [mutant for mutant in mutants if not arguments.lines or mutant.line in arguments.lines]
        if tried:
            yield path, tried


def _try_all(workbench: Workbench, mutants: list[Mutant], equivalents: list[Equivalent]) -> Counter[str]:
    counts = Counter(dict.fromkeys(OUTCOMES, 0))
    tests = TARGETS[mutants[0].path]
    limit_s = workbench.limit_s(tests)
    for mutant in mutants:
        if any(each.covers(mutant) for each in equivalents):
            counts["equivalent"] += 1
            continue
        outcome = workbench.outcome(mutant, tests, limit_s)
        counts[outcome] += 1
        if outcome != "killed":
            print(f"{outcome} {mutant}", flush=True)
    print(f"{mutants[0].path}: {dict(counts)}", flush=True)
    return counts


def _report(counts: dict[str, Counter[str]], broken: list[str]) -> int:
    total = sum(counts.values(), Counter(dict.fromkeys(OUTCOMES, 0)))
    answer = {name: total[name] for name in OUTCOMES}
    print(json.dumps(answer | {"not_run": broken, "files": counts}))
    noticed = total["killed"] + total["timed_out"]
    return 0 if not broken and noticed >= BAR * (noticed + total["survived"]) else 1


def _equivalents() -> list[Equivalent]:
    entries = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())["equivalent"]
    return [Equivalent(**entry) for entry in entries]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="FILE", choices=list(TARGETS), help="of these files alone")
    parser.add_argument("--lines", nargs="+", type=int, metavar="N", help="of these lines alone")
    parser.add_argument("--sample", type=int, metavar="N", help="that many of them")
    parser.add_argument("--seed", type=int, default=1, help="what the sample is drawn from (1)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
