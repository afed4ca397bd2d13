"""Universes in which a guarantee was violated once. A file in `seeds/` says what was found, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verification.simulation import runner

# The first universe of a process takes longer.
pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.xdist_group("seeds")]

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.json"))
_SLOW_KINDS = ("whole", "wire")


def _parameter(path: Path) -> Any:
    slow = path.stem.startswith(_SLOW_KINDS)
    return pytest.param(path, id=path.stem, marks=[pytest.mark.slow, pytest.mark.weekly] if slow else [])


@pytest.mark.parametrize("path", [*map(_parameter, SEEDS)])
def test_a_universe_that_failed_once_is_sound(path: Path) -> None:
    seed = json.loads(path.read_text(encoding="utf-8"))
    kind = runner.kind_named(seed["kind"])

    result = runner.run(kind, kind.plan(seed["seed"], seed["events"], seed["faults"]))

    assert result.violations == []
