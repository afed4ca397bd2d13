"""The requirements of the samples: pip reads them, what they name exists, and they have the tested versions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from local.make_venv import read_groups
from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

OF_SAMPLES = sorted((ROOT / "samples").rglob("requirements*.txt"))
FILES = [ROOT / "requirements.txt", *OF_SAMPLES]

# A comment shows the command that installs the libraries too.
_PATH = re.compile(r"(?:^|\s)(?:-[er] ?)?(\.{1,2}/[\w./-]+|[\w./-]+\.txt)")


def lines_of(text: str) -> list[str]:
    """Return the lines of requirements, without comments."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def absent(text: str, root: Path) -> list[str]:
    """Return the paths in a file of requirements that do not exist, comments included.

    pip takes them from the folder that it is started in, which the samples' pages have at the root.
    """
    return [path for path in _PATH.findall(text) if not (root / path).exists()]


def unreadable(text: str) -> list[str]:
    """Return the lines that do not pin one package.

    A folder is none: Dependabot looks for it below the file, and updates nothing if it is elsewhere.
    """
    found = []
    for line in lines_of(text):
        try:
            pinned = str(Requirement(line).specifier).startswith("==")
        except InvalidRequirement:
            pinned = False
        if not pinned:
            found.append(line)
    return found


def versions(lines: list[str]) -> dict[str, set[str]]:
    """Return the versions of each package, one for each marker."""
    found: dict[str, set[str]] = {}
    for requirement in map(Requirement, lines):
        found.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_requirements_can_be_read_and_name_what_exists(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    assert (unreadable(text), absent(text, ROOT)) == ([], [])


@pytest.mark.parametrize("file", OF_SAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_sample_has_the_versions_that_the_tests_run(file: Path) -> None:
    groups = [line for group in read_groups().values() for line in group if isinstance(line, str)]
    tested = versions([*groups, *lines_of((ROOT / "requirements.txt").read_text(encoding="utf-8"))])
    own = versions(lines_of(file.read_text(encoding="utf-8")))

    assert own == {name: tested.get(name) for name in own}


def test_what_pip_would_refuse_is_found(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    lines = ["-e ./here", "-e ./elsewhere", "fastapi", "fastapi==1 uvicorn==2", "uvicorn==2"]
    text = "\n".join(["# pip install ./gone -r also/gone.txt", *lines])

    assert absent(text, tmp_path) == ["./gone", "also/gone.txt", "./elsewhere"]
    assert unreadable(text) == lines[:-1]


@pytest.mark.slow
def test_pip_finds_the_requirements_of_the_samples_in_the_environment_of_the_tests() -> None:
    files = [word for file in OF_SAMPLES for word in ("-r", str(file))]

    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--disable-pip-version-check", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout
