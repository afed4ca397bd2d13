"""The attacks that changefeed/ATTACKS.md lists name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_attack_has_a_test_that_exists() -> None:
    page = (_ROOT / "changefeed" / "ATTACKS.md").read_text(encoding="utf-8")
    named = _NAMED.findall(page)
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| attack |")]

    missing = [
        f"{path}::{name}"
        for path, name in named
        if f"def {name}(" not in (_ROOT / path).read_text(encoding="utf-8")
    ]

    assert missing == []
    assert len(named) == len(rows) > 30
