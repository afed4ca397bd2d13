"""packages/emulators/docs/compatibility.md: every row names tests that exist, and no suite is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PAGE = (ROOT / "packages" / "emulators" / "docs" / "compatibility.md").read_text(encoding="utf-8")
PYTHON = ROOT / "packages" / "emulators" / "tests"
JAVASCRIPT = ROOT / "packages" / "emulators" / "tests" / "languages"
SUITES = [
    str(path.relative_to(JAVASCRIPT))
    for service in ("cosmos", "servicebus")
    for path in sorted((JAVASCRIPT / service).glob("*.mjs"))
    if path.name not in ("harness.mjs", "main.mjs")
]


def rows(page: str) -> list[list[str]]:
    """The cells of each row of the tables, without their heads."""
    lines = [line for line in page.splitlines() if line.startswith("|") and not line.startswith("|---")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[-1] != "shown by"]


def named(row: list[str]) -> list[str]:
    """The tests in the last cell of a row: `FILE.py::TEST` or `FILE.mjs: CHECK`."""
    return re.findall(r"`([^`]+)`", row[-1])


def exists(test: str) -> bool:
    """Return True if a test that a row names is in the file that it names."""
    file, separator, name = re.fullmatch(r"([\w/.]+?)(::|: )(.+)", test).groups()  # type: ignore[union-attr]
    path = (PYTHON if separator == "::" else JAVASCRIPT) / file
    start = f"def {name}(" if separator == "::" else f'check("{name}", '
    return path.is_file() and start in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("row", rows(PAGE), ids=lambda row: row[0])
def test_a_row_says_what_both_do_and_names_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 4
    assert all(row)
    assert named(row), "no test shows it"
    assert [test for test in named(row) if not exists(test)] == []


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_of_the_javascript_sdks_shows_a_row(suite: str) -> None:
    assert any(test.startswith(f"{suite}: ") for row in rows(PAGE) for test in named(row))


@pytest.mark.parametrize(
    "test",
    [
        "cosmos/test_items.py::test_nothing_of_the_kind",
        "cosmos/test_nowhere.py::test_an_invalid_id_is_refused",
        "cosmos/items.mjs: the account says",
        "servicebus/nowhere.mjs: the account says what it is",
    ],
)
def test_a_test_that_does_not_exist_is_found(test: str) -> None:
    assert not exists(test)


def test_the_page_refers_to_its_own_tables_alone() -> None:
    assert len(rows(PAGE)) > 50
    assert {Path(test.split(":")[0]).parts[0] for row in rows(PAGE) for test in named(row)} == {
        "cosmos",
        "servicebus",
        "functions",
        "integration",
    }
