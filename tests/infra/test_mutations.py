"""The checks can fail: for each change of a load-bearing line in a copy, the check that guards it fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from relay.core.errors import SettingsError
from tests.infra.compiler import MISSING, Compiler, find_compiler
from tests.infra.deployment import BicepError, DeploymentFailure
from tests.infra.mutations import MUTATIONS, Mutation
from tests.infra.project import ROOT, Check, Project, checks
from tests.infra.snapshots import Compiled
from tests.infra.test_checks import MODULES

# In one process, the compiler starts and queries are translated once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("infra")]


BESIDE = ("docs", "azure.yaml", "local.settings.sample.json")
"""Other files that the checks read."""

# A change may also make the deployment reject its parameters or the relay its settings, or remove a name, before a
# check compares anything.
NOTICES = (
    AssertionError,
    BicepError,
    DeploymentFailure,
    SettingsError,
    KeyError,
    ValueError,
    pytest.fail.Exception,
)


@pytest.fixture(scope="module")
def untouched() -> Callable[[Check], None]:
    """Runs a check on the unchanged project, once."""
    project = Project(ROOT)

    @cache
    def run(check: Check) -> None:
        check(project)

    return run


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copied = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "infra", copied / "infra")
    # Only the compiler's own errors may notice a change before its check does, not the linter's.
    (copied / "infra/bicepconfig.json").write_text('{"analyzers": {"core": {"enabled": false}}}', encoding="utf-8")
    shutil.copy(ROOT / "host.json", copied)
    for name in BESIDE:
        (copied / name).symlink_to(ROOT / name)
    return copied


@contextmanager
def changed(file: Path, text: str) -> Iterator[None]:
    """Replace the text of a file, and restore it afterwards."""
    original = file.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(original, encoding="utf-8")


@pytest.mark.skipif(find_compiler() is None, reason=MISSING)
@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=lambda each: f"{Path(each.file).stem}: {each.new.strip()[:50]}"
)
def test_a_changed_line_fails_its_check(
    mutation: Mutation, folder: Path, compiler: Compiler, untouched: Callable[[Check], None]
) -> None:
    copy = Project(folder, Compiled(compiler))
    file = copy.infra / mutation.file
    text = file.read_text(encoding="utf-8")
    check = checks()[mutation.check]
    untouched(check)

    with changed(file, text.replace(mutation.old, mutation.new)), pytest.raises(NOTICES):
        check(copy)


def test_most_checks_have_a_mutation_that_fails_them() -> None:
    assert MODULES
    guarded = {mutation.check for mutation in MUTATIONS}
    assert guarded <= set(checks())
    assert len(guarded) >= 0.6 * len(checks()), sorted(set(checks()) - guarded)
