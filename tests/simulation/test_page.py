"""The page of the simulation names each kind of universe, with a module that runs it."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT
from verification.simulation import runner

PAGE = (ROOT / "verification/simulation/README.md").read_text(encoding="utf-8")


def test_the_page_names_every_kind() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(runner.KINDS)


@pytest.mark.parametrize("name", runner.KINDS)
def test_a_kind_has_plans_that_differ_by_their_seeds(name: str) -> None:
    kind = runner.kind_named(name)

    plans = [kind.plan(seed, 20, 10) for seed in range(3)]

    assert len(set(plans)) == 3
    assert kind.plan(1, 20, 10) == plans[1]
    assert len(plans[0].without([0, 9]).faults) == 8
