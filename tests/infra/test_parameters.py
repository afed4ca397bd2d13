"""The script that writes infra/relay.json, on the example of docs/deployment.md."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.project import ROOT, Project
from tests.support.watchdog import WATCHDOG_S

PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## With relay.toml") : PAGE.index("## Large events")]


def example(language: str) -> str:
    """The section's block in this language."""
    [block] = re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    return str(block)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the page's relay.toml."""
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra/parameters.py", tmp_path / "infra")
    (tmp_path / "relay").symlink_to(ROOT / "relay")
    (tmp_path / "relay.toml").write_text(example("toml"), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the page's command."""
    _, *command = example("sh").split()
    return subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=folder,
        env={},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )


def test_the_script_writes_what_the_file_needs_and_knows_when_it_changed(folder: Path) -> None:
    ended = run(folder)
    assert (ended.returncode, ended.stdout) == (0, example("text")), ended.stderr
    assert run(folder, "--check").returncode == 0

    (folder / "relay.toml").write_text(example("toml").replace("contacts", "people"), encoding="utf-8")

    stale = run(folder, "--check")
    assert (stale.returncode, stale.stderr) == (
        1,
        "infra/relay.json is not what relay.toml needs: run python -m infra.parameters\n",
    )


def test_a_wrong_file_is_named_and_nothing_is_written(folder: Path) -> None:
    (folder / "relay.toml").write_text("[[routes]]\nto = ['nowhere']", encoding="utf-8")

    ended = run(folder)

    assert ended.returncode == 1
    assert "routes[0].to has 'nowhere'" in ended.stderr
    assert not (folder / "infra/relay.json").exists()


def test_the_pages_parameters_are_accepted(folder: Path) -> None:
    run(folder)
    project = Project(ROOT)
    given = project.parameters_of(example("bicep"))
    written = json.loads((folder / "infra/relay.json").read_text(encoding="utf-8"))

    deployment = project.deploy(**given, **written)

    names = {
        each.name.partition("/")[2] for each in deployment.resources if each.type.endswith(("topics", "queues"))
    }
    assert names == {"domain-events", "contacts", "invoices"}
