"""No test fails because a machine is slow: what has to happen is awaited for WATCHDOG_S."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.pages import ROOT

FOLDERS = (
    *("acceptance", "changefeed", "contracts", "fuzz", "infra", "integration", "support", "telemetry"),
    "../emulators/tests",
)
MODULES = [path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).resolve().rglob("*.py"))]
WAITS = ("asyncio.timeout", "asyncio.wait_for", "asyncio.wait")

LONGEST_S = 2.0
"""A shorter wait is for something that must not happen: it passes on a busy machine, too."""


def limits(source: str) -> Iterator[int]:
    """The lines with a time limit of its own, in seconds, for what has to happen."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in WAITS:
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(isinstance(each, ast.Constant) and _is_long(each.value) for each in values):
                yield node.lineno


def _is_long(value: object) -> bool:
    return isinstance(value, int | float) and value > LONGEST_S


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async def f():\n    async with asyncio.timeout(20):\n        pass", [2]),
        ("asyncio.wait_for(task, 2.5)", [1]),
        ("asyncio.wait({task}, timeout=60)", [1]),
        ("asyncio.wait_for(task, WATCHDOG_S)", []),
        ("asyncio.wait({task}, timeout=0.2)", []),
        ("asyncio.timeout(None)", []),
    ],
)
def test_limits_are_found(source: str, lines: list[int]) -> None:
    assert list(limits(source)) == lines


def test_what_has_to_happen_is_awaited_under_the_watchdog_only() -> None:
    found = {
        f"{module.relative_to(ROOT)}:{line}"
        for module in MODULES
        if any(name in (source := module.read_text(encoding="utf-8")) for name in WAITS)
        for line in limits(source)
    }

    assert found == set()
