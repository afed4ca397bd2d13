"""The Bicep compiler accepts every file without a warning, and the committed snapshots are its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra import snapshots
from tests.infra.compiler import (
    METADATA,
    MISSING,
    Compiler,
    find_compiler,
    run_compiler,
    to_bicep,
)
from tests.infra.project import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("infra"),
    pytest.mark.skipif(find_compiler() is None, reason=MISSING),
]

STALE = f"run {snapshots.COMMAND}, look at the difference, and commit it"


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as started:
        yield started


@pytest.fixture(scope="module")
def source(compiler: Compiler) -> snapshots.Compiled:
    return snapshots.Compiled(compiler)


@pytest.mark.parametrize(("command", "pattern"), [("build", "*.bicep"), ("build-params", "*.bicepparam")])
def test_every_file_compiles_without_a_warning(command: str, pattern: str, tmp_path: Path) -> None:
    """Warnings of the linter count."""
    ended = run_compiler(command, "--pattern", pattern, "--outdir", str(tmp_path), cwd=ROOT / "infra")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert {file.stem for file in tmp_path.iterdir()} == {file.stem for file in (ROOT / "infra").glob(pattern)}


def test_the_command_that_compares_a_snapshot_agrees() -> None:
    options = {
        "--mode": "validate",
        "--tenant-id": METADATA["tenantId"],
        "--subscription-id": METADATA["subscriptionId"],
        "--resource-group": METADATA["resourceGroup"],
        "--location": METADATA["location"],
        "--deployment-name": METADATA["deploymentName"],
    }
    words = [word for option in options.items() for word in option]
    ended = run_compiler("snapshot", str(ROOT / "infra/main.production.bicepparam"), *words)

    assert (ended.returncode, ended.stderr) == (0, ""), f"{ended.stdout}\n{STALE}"


@pytest.mark.parametrize("name", snapshots.parameter_files())
def test_the_snapshot_of_a_parameter_file_is_valid(name: str, compiler: Compiler) -> None:
    known = json.loads(snapshots.snapshot_path(name).read_text(encoding="utf-8"))

    assert compiler.snapshot_of(ROOT / "infra" / name) == known, STALE


@pytest.mark.parametrize("path", [*snapshots.records()], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_snapshot_of_other_parameters_is_valid(path: Path, source: snapshots.Compiled) -> None:
    known = json.loads(path.read_text(encoding="utf-8"))

    assert snapshots.take(source, known["template"], known["file"], known["given"]) == known, STALE


def test_the_evaluated_parameters_are_valid(source: snapshots.Compiled) -> None:
    known = snapshots.read_all_parameters()

    assert [snapshots.evaluate(source, each) for each in known] == known, STALE


@pytest.mark.parametrize("value", ["", "it's ${no} \\n\n", 5, -1, True, None, [], {}, [{"a b": [1, "x"]}, {}]])
def test_the_compiler_reads_what_is_written_for_it(value: object, compiler: Compiler) -> None:
    text = f"using none\nparam value = {to_bicep(value)}\n"

    assert compiler.parameters_of(text) == {"value": value}
