"""The specifications, their controls, and the page that lists them. `make spec` checks them."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT
from verification.spec.runs import CONTROLS, FOLDER, HOLDING, LIVENESS, SAFETY, Run, parts_of, text_of

MODULES = sorted(path.stem for path in FOLDER.glob("*.tla"))
PAGE = (ROOT / "verification" / "spec" / "README.md").read_text(encoding="utf-8")
LISTED = [
    (module, part, violated, "safeguard")
    for module, violated, parts in re.findall(r"^\| (\w+) \| (G\d) \| (`.+`) \|$", PAGE, re.MULTILINE)
    for part in re.findall(r"`(\w+)`", parts)
] + [
    (module, part, violated, "assumption")
    for module, part, violated in re.findall(r"^\| `(\w+)\.(\w+)` \| (G\d) \| \w", PAGE, re.MULTILINE)
]


def kind_of(module: str, part: str) -> str:
    """Return the kind of a constant that the heading above it names."""
    before = text_of(module).split(f"    {part}")[0].lower()
    return "assumption" if before.rfind("\\* assumption") > before.rfind("\\* safeguard") else "safeguard"


@pytest.mark.parametrize("module", MODULES)
def test_each_part_is_taken_out_once(module: str) -> None:
    controls = [run.without for run in CONTROLS if run.module == module]

    assert sorted(filter(None, controls)) == sorted(parts_of(module))
    assert all(run.violated for run in CONTROLS)


@pytest.mark.parametrize("module", MODULES)
def test_a_specification_holds_with_all_of_its_parts(module: str) -> None:
    holding = [run for run in HOLDING if run.module == module]
    defined = {name for name in (*SAFETY, LIVENESS) if f"\n{name} ==" in text_of(module)}

    assert {name for run in holding for name in run.guarantees} == defined
    assert all((run.without, run.violated) == (None, None) for run in holding)


@pytest.mark.parametrize("run", [*HOLDING, *CONTROLS], ids=lambda run: run.name)
def test_what_is_checked_is_defined(run: Run) -> None:
    text = text_of(run.module)
    checked = (LIVENESS, "FairSpec") if run.liveness else (run.violated or SAFETY[0], "Spec", "Symmetry")

    assert [name for name in checked if f"\n{name} ==" not in text] == []


def test_the_page_lists_each_part_with_what_is_violated_without_it() -> None:
    expected = [
        (module, part, violated, kind_of(module, part))
        for module in MODULES
        for part in parts_of(module)
        for violated in [next(run.violated for run in CONTROLS if (run.module, run.without) == (module, part))]
    ]

    assert sorted(LISTED) == sorted(expected)


@pytest.mark.parametrize("module", MODULES)
def test_the_code_that_a_specification_names_is_there(module: str) -> None:
    paths = re.findall(r"(?<![\w/])(?:outbox_relay|relay)/[\w/]+(?:\.py)?\b", text_of(module))

    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
