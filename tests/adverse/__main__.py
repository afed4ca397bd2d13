"""Run the quick tests under adverse conditions, and print a table of what failed under which.

    python -m tests.adverse                      # every condition
    python -m tests.adverse quiet load           # those named

Conditions that do not need the machine for themselves run two at a time. The output of each run is kept in
`.local/adverse`. The exit code is 0 if no test failed under any condition.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from local.stack.ports import PORTS
from tests.support.clones import copy_of_project
from tests.support.pythons import other_pythons

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".local" / "adverse"

# Until the process that started it has ended, by whatever signal.
_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
_PROCESSES = "4"
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Condition:
    """A way to run the quick tests.

    Attributes:
        name: Its name in the table and on the command line.
        words: Its description in the table.
        is_alone: No other one runs meanwhile.
        environment: Variables in addition to this process's own.
        options: Options of pytest.
        processes: The number of pytest's processes.
        busy_loops: The number of processes that compete for the processor.
        umask: The permissions that files are made without; -1 for this process's own.
        takes_ports: The default ports of the local stack are taken.
        folder: The name of the folder that a copy of the project is made in; None for this one.
        python: The interpreter that a copy of the project makes its own environment with.
    """

    name: str
    words: str = ""
    is_alone: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    processes: str = _PROCESSES
    busy_loops: int = 0
    umask: int = -1
    takes_ports: bool = False
    folder: str | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The counts of one run, its times in seconds, and the ids of the tests that failed."""

    passed: int
    failed: Sequence[str]
    skipped: int
    wall_s: float
    processor_s: float
    code: int

    @property
    def is_clean(self) -> bool:
        """Return True if tests ran and none failed."""
        return self.code == 0 and self.passed > 0 and not self.failed


def conditions() -> list[Condition]:
    """Return every condition. Those that have nothing to do with each other share a run."""
    elsewhere = {"TZ": "Pacific/Kiritimati", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "1"}
    return [
        Condition("quiet", is_alone=True),
        Condition("load", "four busy loops, random order", is_alone=True, options=("--order", "1"), busy_loops=4),
        Condition(
            "elsewhere",
            "another zone, language, umask; ports taken; random order",
            environment=elsewhere,
            options=("--order", "2"),
            umask=0o077,
            takes_ports=True,
        ),
        Condition("reversed", "one process", options=("--order", "reversed"), processes="1"),
        Condition(
            "path",
            "a space and an umlaut, eight processes, random order",
            options=("--order", "3"),
            processes="8",
            folder="a project in Köln",
        ),
        *(
            Condition(Path(python).name, "its own environment", folder="project", python=python)
            for python in other_pythons()
        ),
    ]


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Compete for the processor with this many processes."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def taken_ports() -> Iterator[None]:
    """Listen on the default ports of the local stack, unless somebody does already."""
    with ExitStack() as stack:
        for port in PORTS:
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port.default)))
        yield


def run_each(wanted: Iterable[Condition]) -> Iterator[tuple[Condition, Result]]:
    """Run the quick tests under each condition, first under those that are alone."""
    together = []
    for condition in wanted:
        if condition.is_alone:
            yield condition, run(condition)
        else:
            together.append(condition)
    with ThreadPoolExecutor(_AT_ONCE) as executor:
        yield from zip(together, executor.map(run, together), strict=True)


def run(condition: Condition) -> Result:
    """Run the quick tests under a condition, with another home folder and temporary folder each."""
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="adverse-")))
        for name in ("home", "tmp"):
            (temporary / name).mkdir()
        root = ROOT if condition.folder is None else copy_of_project(temporary / condition.folder, git=True)
        environment = {
            **os.environ,
            # The same packages, and the libraries of the copy in place of those of this folder.
            "PYTHONPATH": os.pathsep.join(map(str, sorted(root.glob("packages/*/src")))),
            "HOME": str(temporary / "home"),
            "TMPDIR": str(temporary / "tmp"),
            **condition.environment,
        }
        python = sys.executable
        if condition.python is not None:
            del environment["PYTHONPATH"]
            environment["HOME"] = os.environ["HOME"]  # the packages that pip has downloaded
            set_up = ["make", "setup", f"PYTHON={condition.python}"]
            subprocess.run(set_up, cwd=root, env=environment, check=True)
            python = str(root / ".venv/bin/python")
        report = temporary / "report.xml"
        command = [
            *(python, "-m", "pytest", "-q", "-m", "not slow", "-n", condition.processes, "--dist", "loadgroup"),
            *(f"--junitxml={report}", *condition.options),
        ]
        stack.enter_context(busy_loops(condition.busy_loops))
        if condition.takes_ports:
            stack.enter_context(taken_ports())
        begin = time.monotonic()
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / f"{condition.name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT, umask=condition.umask
            )
            _, status, used = os.wait4(process.pid, 0)
        # Without it, Popen takes the process for one that nobody has waited for.
        process.returncode = os.waitstatus_to_exitcode(status)
        return result_of(report, time.monotonic() - begin, used.ru_utime + used.ru_stime, process.returncode)


def result_of(report: Path, wall_s: float, processor_s: float, code: int) -> Result:
    """Read the counts from a report in JUnit's format; a run that wrote none has no tests."""
    cases = [*ElementTree.parse(report).iter("testcase")] if report.is_file() else []
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Result(len(cases) - len(failed) - skipped, failed, skipped, wall_s, processor_s, code)


def main(words: Sequence[str]) -> int:
    """Run the conditions that are named, or all; returns the exit code."""
    known = {condition.name: condition for condition in conditions()}
    parser = argparse.ArgumentParser(prog="python -m tests.adverse", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}; all by default")
    names = parser.parse_args(words).names or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    print(f"{'condition':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'wall':>8}{'processor':>11}", flush=True)
    clean = True
    for condition, result in run_each([known[name] for name in names]):
        name = condition.name
        clean = clean and result.is_clean
        print(
            f"{name:<12}{result.passed:>8}{len(result.failed):>8}{result.skipped:>9}"
            f"{result.wall_s:>7.0f}s{result.processor_s:>10.0f}s  {condition.words}"
            + ("" if result.is_clean else f"   exit code {result.code}, {_shown(LOGS / f'{name}.log')}"),
            flush=True,
        )
        for test in result.failed:
            print(f"    {re.sub(r'[^ -~]', '?', test)}", flush=True)
    return 0 if clean else 1


def _shown(log: Path) -> Path:
    return log.relative_to(ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
