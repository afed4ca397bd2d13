"""The table of attacks names tests that there are."""

from __future__ import annotations

import re

from tests.support.pages import ROOT

PAGE = (ROOT / "inbox/ATTACKS.md").read_text(encoding="utf-8")


def test_each_test_of_the_table_exists() -> None:
    files = {path.relative_to(ROOT / "tests").as_posix(): path for path in (ROOT / "tests").rglob("test_*.py")}
    defined = {
        name: set(re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))) for name, path in files.items()
    }
    everywhere = set().union(*defined.values())
    named = re.findall(r"`([\w/]+/test_\w+\.py)?(?:::)?(test_\w+)?`", PAGE)

    shown = [(file, test) for file, test in named if file or test]
    assert len(shown) > 30
    for file, test in shown:
        assert not file or file in files
        assert not test or test in (defined[file] if file else everywhere)
