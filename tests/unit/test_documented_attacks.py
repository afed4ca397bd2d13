"""Each attack that a package's ATTACKS.md lists names a test that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages import ROOT

# A test file by its path, from the repository or from `tests/`, or a test of one, or both.
_NAMED = re.compile(r"`(?:(?:tests/)?([\w/]+/test_\w+\.py))?(?:::)?(test_\w+)?`")
_PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/ATTACKS.md"))


@cache
def find_tests(file: str) -> frozenset[str]:
    """The tests of a file, by its path below `tests/`."""
    path = ROOT / "tests" / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def wrong_rows(page: str) -> Iterator[str]:
    """The rows of a page's tables that name no test, or one that does not exist.

    A name without a file is that of a test in a file that the page names before, under the same heading.
    """
    files: set[str] = set()
    for line in page.splitlines():
        if line.startswith("#"):
            files.clear()
        named = [(file, test) for file, test in _NAMED.findall(line) if file or test]
        files |= {file for file, _ in named if file}
        missing = [f"no tests in {file}" for file, _ in named if file and not find_tests(file)]
        missing += [
            test
            for file, test in named
            if test and not any(test in find_tests(each) for each in ({file} if file else files))
        ]
        is_row = line.startswith("| ") and not line.startswith("| attack |")
        if missing or (is_row and not named):
            yield f"{line}: {', '.join(missing) or 'no test'}"


@pytest.mark.parametrize("path", _PAGES)
def test_every_attack_has_a_test_that_exists(path: str) -> None:
    assert list(wrong_rows((ROOT / path).read_text(encoding="utf-8"))) == []


def test_what_is_wrong_with_a_page_is_found() -> None:
    here = Path(__file__).relative_to(ROOT / "tests").as_posix()
    page = f"""
| attack | outcome | test |
|---|---|---|
| a | held | `{here}::test_every_attack_has_a_test_that_exists` |
| b | held | `test_what_is_wrong_with_a_page_is_found`, `tests/{here}` |
| c | held | none |
| d | held | `{here}::test_gone` |
| e | held | `unit/test_gone.py` |
## Another heading
| f | held | `test_what_is_wrong_with_a_page_is_found` |
"""

    assert [row.split(" | ")[0] for row in wrong_rows(page)] == ["| c", "| d", "| e", "| f"]
