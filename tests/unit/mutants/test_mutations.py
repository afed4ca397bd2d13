"""The mutants of a file: those that are worth a test run, each once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mutants.mutations import mutants_of
from tests.mutants.targets import TARGETS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def changes(folder: Path, text: str, name: str = "module.py") -> set[tuple[str, str]]:
    (folder / name).write_text(text)
    return {(mutant.was, mutant.becomes) for mutant in mutants_of(folder, name)}


def test_a_comparison_becomes_its_opposite_and_its_neighbour(tmp_path: Path) -> None:
    assert changes(tmp_path, "x = a < b\n") == {("x = a < b", "x = a <= b"), ("x = a < b", "x = a >= b")}


def test_numbers_and_flags_are_changed(tmp_path: Path) -> None:
    assert {becomes for _, becomes in changes(tmp_path, "wait(7, now=True)\n")} == {
        "wait( 8, now=True)",
        "wait( 6, now=True)",
        "wait(7, now=False)",
        "pass",
    }


def test_calls_and_additions_are_left_out_and_assignments_are_not(tmp_path: Path) -> None:
    text = "async def f(n):\n    await g()\n    n += m\n    k = h()\n    return k\n"

    assert changes(tmp_path, text) == {("await g()", "pass"), ("n += m", "pass")}


def test_docstrings_and_annotations_and_signatures_have_no_mutants(tmp_path: Path) -> None:
    assert changes(tmp_path, 'def f(a: int | None, *, b: str | None) -> int | None:\n    """Text."""\n') == set()


def test_what_means_the_same_is_tried_once(tmp_path: Path) -> None:
    found = changes(tmp_path, "if a == b:\n    x = y\n")

    assert len(found) == 1


def test_each_value_of_json_is_removed_and_changed(tmp_path: Path) -> None:
    text = json.dumps({"a": {"timeout": "00:10"}, "on": True, "kind": "None"})

    assert changes(tmp_path, text, "host.json") == {
        ('a.timeout: "00:10"', "a.timeout: nothing"),
        ('a.timeout: "00:10"', 'a.timeout: "01:10"'),
        ('a.timeout: "00:10"', 'a.timeout: "00:11"'),
        ('a.timeout: "00:10"', 'a.timeout: "00:09"'),
        ("on: true", "on: nothing"),
        ("on: true", "on: false"),
        ('kind: "None"', "kind: nothing"),
        ('kind: "None"', 'kind: "Nonex"'),
    }


@pytest.mark.parametrize("path", TARGETS)
def test_every_file_and_the_tests_that_judge_it_are_there(path: str) -> None:
    assert (ROOT / path).is_file()
    assert all((ROOT / each).exists() for each in TARGETS[path])
