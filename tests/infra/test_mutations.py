"""The checks can fail: each load-bearing line is changed in a copy, and the check that guards it has to notice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from relay.errors import SettingsError
from tests.infra.evaluation import BicepError
from tests.infra.project import ROOT, Project, checks
from tests.infra.test_checks import MODULES


class Mutation(NamedTuple):
    """In `file`, a path from `infra/`, `old` becomes `new`: then `check` has to fail."""

    check: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation(check, **change)
    for check, changes in Project(ROOT).yaml("tests/infra/mutations.yaml").items()
    for change in changes
]
BESIDE = ("docs", "azure.yaml", "local.settings.sample.json")
"""What checks read too, and no mutation changes."""

# A change may make the relay refuse its settings, or a name go missing, before anything is compared.
NOTICES = (AssertionError, BicepError, SettingsError, KeyError, ValueError, pytest.fail.Exception)


@pytest.fixture(scope="module")
def untouched() -> Project:
    return Project(ROOT)


@pytest.fixture
def copy(tmp_path: Path) -> Project:
    shutil.copytree(ROOT / "infra", tmp_path / "infra")
    shutil.copy(ROOT / "host.json", tmp_path)
    for name in BESIDE:
        (tmp_path / name).symlink_to(ROOT / name)
    return Project(tmp_path)


@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=lambda each: f"{Path(each.file).stem}: {each.new.strip()[:50]}"
)
def test_a_changed_line_is_noticed(mutation: Mutation, copy: Project, untouched: Project) -> None:
    file = copy.infra / mutation.file
    text = file.read_text(encoding="utf-8")
    assert mutation.old in text, "the line that this mutation changes is there no more"
    check = checks()[mutation.check]
    check(untouched)

    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")

    with pytest.raises(NOTICES):
        check(copy)


def test_most_checks_have_a_mutation_that_they_notice() -> None:
    assert MODULES
    guarded = {mutation.check for mutation in MUTATIONS}
    assert guarded <= set(checks())
    assert len(guarded) >= 0.6 * len(checks()), sorted(set(checks()) - guarded)
