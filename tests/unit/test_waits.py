"""No quick test fails because a machine is slow: it waits for WATCHDOG_S, and times nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.support.pages import ROOT

# Tests of the simulation run in virtual time; those of the benchmarks and of mutants are about time itself.
FOLDERS = (
    "acceptance",
    "changefeed",
    "contracts",
    "fuzz",
    "infra",
    "integration",
    "support",
    "unit",
    "../packages/emulators/tests",
)
LEFT = (
    *("tests/changefeed/sqlserver/", "tests/unit/bench/", "tests/support/leaks.py", "tests/support/waiting.py"),
    # Stand-ins whose callers wait.
    *(
        "tests/unit/relay/topics.py",
        "packages/emulators/tests/servicebus/support.py",
        "tests/fuzz/test_servicebus_histories.py",
    ),
)
MODULES = [path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).resolve().rglob("*.py"))]

WAITS = ("asyncio.timeout", "asyncio.wait_for", "asyncio.wait")
SLEEPS = ("asyncio.sleep", "time.sleep")
CLOCKS = (
    "time.time",
    "time.monotonic",
    "time.perf_counter",
    "datetime.now",
    "loop.time",
    "get_running_loop().time",
)
OF_DAY = ("time.time", "datetime.now")
"""Clocks that may be set while a test runs: a test compares their readings before and after."""

_SLOW = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b", re.MULTILINE)
_VIRTUAL = re.compile(r"\bvirtual_time\b")

LONGEST_S = 2.0
"""A shorter wait is for something that must not happen: it passes on a busy machine, too."""


def found(source: str) -> list[int]:
    """Return the lines of a module whose quick tests depend on how fast the machine is."""
    tree = ast.parse(source)
    virtual = _VIRTUAL.search(source) is not None
    lines = []
    for node in _quick(tree):
        if isinstance(node, ast.expr) and (
            _waits_long(node) or (not virtual and (_sleeps(node) or _limits_a_time(node)))
        ):
            lines.append(node.lineno)
        if not virtual and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines += _limits_of_durations(node)
    return sorted(set(lines))


def _limits_of_durations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Yield the lines that assert that a variable, which was read from a clock, is below another limit."""
    clocked: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and (_reads_clock(node.value) or _names(node.value) & clocked):
            clocked.update(*map(_names, node.targets))
    asserted = [each.test for each in ast.walk(function) if isinstance(each, ast.Assert)]
    for compare in [each for test in asserted for each in ast.walk(test) if isinstance(each, ast.Compare)]:
        for (left, right), operator in zip(
            pairwise([compare.left, *compare.comparators]), compare.ops, strict=True
        ):
            match operator:
                case ast.Lt() | ast.LtE():
                    bounded, limit = left, right
                case ast.Gt() | ast.GtE():
                    bounded, limit = right, left
                case _:
                    continue
            if _names(bounded) & clocked and _is_limit(limit):
                yield compare.lineno


def _is_limit(expression: ast.AST) -> bool:
    """Return True for a duration other than the watchdog's."""
    text = ast.unparse(expression)
    is_duration = isinstance(expression, ast.Constant | ast.BinOp) or text.startswith("timedelta(")
    return is_duration and not _reads_clock(expression) and "WATCHDOG_S" not in text


def _reads_clock(expression: ast.AST) -> bool:
    calls = [ast.unparse(each.func) for each in ast.walk(expression) if isinstance(each, ast.Call)]
    return any(each.endswith(CLOCKS) for each in calls)


def _names(expression: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(expression) if isinstance(each, ast.Name)}


def _quick(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not any("mark.slow" in ast.unparse(each) for each in getattr(child, "decorator_list", ())):
            yield from _quick(child)


def _waits_long(node: ast.AST) -> bool:
    """Return True for a limit of its own: of a wait, a child process, a thread, a request or a connection."""
    if not isinstance(node, ast.Call):
        return False
    limits = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
    if ast.unparse(node.func) in WAITS:
        limits += node.args
    return any(isinstance(each, ast.Constant) and _is_long(each.value) for each in limits)


def _is_long(value: object) -> bool:
    return isinstance(value, int | float) and value > LONGEST_S


def _sleeps(node: ast.AST) -> bool:
    """Return True for a sleep other than `asyncio.sleep(0)`: tests/support/waiting.py says why a test waits."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in SLEEPS:
        return False
    return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def _limits_a_time(node: ast.AST) -> bool:
    """Return True for an assertion that a time is below a limit other than the watchdog's for a duration."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[-1], ast.Lt | ast.LtE):
        return False
    calls = [ast.unparse(each.func) for each in ast.walk(node.left) if isinstance(each, ast.Call)]
    if not any(each.endswith(CLOCKS) for each in calls):
        return False
    limit = node.comparators[-1]
    if "WATCHDOG_S" in ast.unparse(limit):
        return any(each.endswith(OF_DAY) for each in calls)
    return isinstance(limit, ast.Constant | ast.Call)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async def f():\n    async with asyncio.timeout(20):\n        pass", [2]),
        ("asyncio.wait_for(task, 2.5)", [1]),
        ("asyncio.wait({task}, timeout=60)", [1]),
        ("asyncio.wait_for(task, WATCHDOG_S)", []),
        ("asyncio.wait({task}, timeout=0.2)", []),
        ("subprocess.run(command, check=True, timeout=40)", [1]),
        ("process.communicate(timeout=WATCHDOG_S)", []),
        ("asyncio.timeout(None)", []),
        ("while not holds():\n    await asyncio.sleep(0.01)", [2]),
        ("time.sleep(delay)", [1]),
        ("await asyncio.sleep(0)", []),
        ("@pytest.mark.slow\ndef test_x():\n    time.sleep(5)", []),
        ("virtual_time.run(asyncio.sleep(5))", []),
        ("assert time.monotonic() - began < 5", [1]),
        ("assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)", [1]),
        ("assert abs(datetime.now(UTC) - at) < timedelta(seconds=WATCHDOG_S)", [1]),
        ("assert abs(given - time.time()) < WATCHDOG_S", [1]),
        ("assert before <= at <= datetime.now(UTC)", []),
        ("assert time.monotonic() - began < WATCHDOG_S / 2", []),
        ("assert time.monotonic() - began >= 0.3", []),
        ("while time.monotonic() < ends:\n    pass", []),
        ("def f():\n    took = time.monotonic() - began\n    assert took < 50", [3]),
        (
            "def f():\n    now = loop.time()\n    took = now - began\n    assert sent and 0.3 > took",
            [4],
        ),
        ("def f():\n    took = time.monotonic() - began\n    assert 0.1 <= took < WATCHDOG_S", []),
        ("def f():\n    soon = datetime.now(UTC) + delay\n    assert datetime.now(UTC) >= soon", []),
    ],
)
def test_what_depends_on_the_machine_is_found(source: str, lines: list[int]) -> None:
    assert found(source) == lines


def test_no_quick_test_depends_on_how_fast_the_machine_is() -> None:
    lines = [
        f"{name}:{line}"
        for module in MODULES
        if not (name := str(module.relative_to(ROOT))).startswith(LEFT)
        and not _SLOW.search(source := module.read_text(encoding="utf-8"))
        and any(each in source for each in (*WAITS, *SLEEPS, *CLOCKS))
        for line in found(source)
    ]

    assert lines == []
