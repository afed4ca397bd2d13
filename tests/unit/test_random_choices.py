"""Tests try the same each time: their examples and choices come from a seed, but for those of `make fuzz`."""

from __future__ import annotations

import ast
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pages import ROOT

TIERS = ("tests", "packages/emulators/tests")
_MODULES = ("random", "secrets")
_SOURCES = ("Random", "SystemRandom")
# Only a module with one of these is parsed, which takes its time.
_SUSPECT = re.compile(r"random\b|secrets", re.IGNORECASE)
# There, the universe's own functions stand in for those of `random`; the other one disturbs it with them.
_OF_THE_SIMULATION = {"tests/simulation/test_world.py", "tests/simulation/traced.py"}


def test_examples_are_the_same_in_each_run() -> None:
    assert settings().derandomize is ("FUZZ_EXAMPLES" not in os.environ)


def test_examples_are_the_same_whatever_was_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    @settings(max_examples=500)
    @given(st.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    before = drawn.copy()
    drawn.clear()
    (tmp_path / "module_with_a_constant.py").write_text("CONSTANT = 4711_0815_4711")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("module_with_a_constant")
    draw()

    assert (drawn == before) is ("FUZZ_EXAMPLES" not in os.environ)


def unseeded(text: str) -> Iterator[int]:
    """The lines that draw from the shared generator or from the system, or make a generator without a seed."""
    for node in ast.walk(ast.parse(text)) if _SUSPECT.search(text) else ():
        match node:
            case ast.Call(func=ast.Attribute(ast.Name(module), name), args=args) if module in _MODULES:
                if name not in _SOURCES or not args:
                    yield node.lineno
            case ast.Call(func=ast.Name(name), args=[]) if name in _SOURCES:
                yield node.lineno
            case ast.Call(func=ast.Attribute(ast.Name("os"), "urandom")):
                yield node.lineno
            case ast.ImportFrom(module="random", names=names) if any(each.name not in _SOURCES for each in names):
                yield node.lineno
            case ast.ImportFrom(module="secrets"):
                yield node.lineno


def python_files(tier: str) -> list[Path]:
    return [
        path
        for path in sorted((ROOT / tier).rglob("*.py"))
        if "node_modules" not in path.parts and path.relative_to(ROOT).as_posix() not in _OF_THE_SIMULATION
    ]


@pytest.mark.parametrize("tier", TIERS)
def test_choices_come_from_a_seed(tier: str) -> None:
    paths = python_files(tier)
    found = [f"{path}:{line}" for path in paths for line in unseeded(path.read_text(encoding="utf-8"))]

    assert len(paths) > 50
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "random.choice([1])",
        "random.Random()",
        "Random()",
        "random.SystemRandom()",
        "os.urandom(1)",
        "from random import choice",
        "secrets.token_hex(4)",
        "from secrets import token_hex",
    ],
)
def test_a_choice_without_a_seed_is_found(code: str) -> None:
    assert list(unseeded(code)) == [1]


def test_a_choice_with_a_seed_is_let_pass() -> None:
    code = "import random\nfrom random import Random\nrandom.Random('seed').choice([1])\nRandom(1)"

    assert list(unseeded(code)) == []
