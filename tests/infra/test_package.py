"""azd restores the app's requirements, and uploads only the app."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.infra.project import ROOT, Project

DEPLOYED = {"function_app.py", "host.json", "requirements.txt", "relay", "changefeed"}
UNVERSIONED = (
    ".azure",
    ".local",
    ".venv",
    "__pycache__",
    "build",
    "outbox_relay_app.egg-info",
    "outbox-relay_env",
)
"""Other files that may exist. `azd restore` creates the last one, an environment named after the folder."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The root as setuptools sees it: its files, and a package for each folder with modules."""
    for file in ROOT.iterdir():
        if file.is_dir() and list(file.glob("*.py")):
            (tmp_path / file.name).mkdir()
            (tmp_path / file.name / "__init__.py").touch()
        elif file.suffix in (".py", ".toml", ".txt"):
            shutil.copy(file, tmp_path)
    return tmp_path


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the first step of `pip install .`, which finds packages and dependencies, without a network.

    azd prefers pyproject.toml to requirements.txt: `Restore` in Azure/azure-dev,
    cli/azd/pkg/project/framework_service_python.go, and `InstallProject` in cli/azd/pkg/tools/python/python.go.
    """
    return subprocess.run(
        [sys.executable, "-c", "import setuptools; setuptools.setup()", "--quiet", "egg_info"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def required(text: str) -> set[str]:
    return set(re.findall(r"^([\w-]+==[\w.]+)", text, re.MULTILINE))


def test_a_restore_installs_the_requirements_of_the_app(folder: Path) -> None:
    result = built(folder)

    assert result.returncode == 0, result.stderr
    [egg_info] = folder.glob("*.egg-info")
    wanted = required((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    assert len(wanted) >= 8
    assert required((egg_info / "requires.txt").read_text(encoding="utf-8")) == wanted
    assert not (egg_info / "top_level.txt").read_text(encoding="utf-8").strip(), "a module would be installed"


def test_a_restore_fails_without_an_explicit_list_of_packages(folder: Path) -> None:
    file = folder / "pyproject.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("[tool.setuptools]\npackages = []\n", ""), encoding="utf-8")

    result = built(folder)

    assert result.returncode != 0
    assert "Multiple top-level packages" in result.stderr


def ignored() -> list[str]:
    return (ROOT / ".funcignore").read_text(encoding="utf-8").split()


def versioned() -> set[str]:
    """The first part of each path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=True
    ).stdout
    return {path.partition("/")[0] for path in listed.splitlines()}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_azd_uploads_the_app_and_nothing_else() -> None:
    there = versioned() | set(UNVERSIONED)

    assert {name for name in there if not any(fnmatch(name, pattern) for pattern in ignored())} == DEPLOYED


@pytest.fixture
def uploaded(tmp_path: Path) -> Path:
    """The files of the repository that .funcignore, whose patterns are those of .gitignore, does not exclude."""
    app = tmp_path / "app"
    app.mkdir()
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for path in listed:
        if (ROOT / path).is_file():
            (app / path).parent.mkdir(parents=True, exist_ok=True)
            (app / path).touch()
    git(app, "init", "--quiet")
    (app / ".git/info/exclude").write_text((ROOT / ".funcignore").read_text(encoding="utf-8"), encoding="utf-8")
    (app / ".gitignore").unlink()
    left = git(app, "ls-files", "--others", "--exclude-standard").splitlines()
    shutil.rmtree(app)
    for path in left:
        (app / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, app / path)
    return app


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=50, check=True
    ).stdout


IMPORT = """
import changefeed, function_app
from changefeed.install import migrations
assert migrations("postgresql") and migrations("sqlserver")
print(changefeed.__file__, function_app.__file__, sep="\\n")
"""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_what_is_uploaded_suffices_for_an_outbox_in_sql(uploaded: Path) -> None:
    settings = {
        "SQL": "postgresql://relay@example.postgres.database.azure.com/outbox",
        "SERVICEBUS__fullyQualifiedNamespace": "example.servicebus.windows.net",
    }
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "SYSTEMROOT", "LANG")}
    suffixes = {path.suffix for path in uploaded.rglob("*") if path.is_file()}

    result = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=uploaded,
        env=kept | settings,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert all(Path(path).is_relative_to(uploaded) for path in result.stdout.split()), result.stdout
    assert suffixes == {".py", ".sql", ".json", ".txt", ".typed", ".html", ".css", ".js", ".svg"}
    assert not list(uploaded.rglob("test*"))


def test_every_documented_command_packs_the_same_files() -> None:
    for file in (
        "docs/deployment.md",
        ".github/workflows/deploy.yml",
        ".github/workflows/release.yml",
    ):
        text = (ROOT / file).read_text(encoding="utf-8")
        packed = re.findall(r"zip -r \S+ (.+?) -x '\*/__pycache__/\*'", text)
        assert packed, file
        assert {*packed[0].split()} == DEPLOYED, file


def test_azd_deploys_from_the_root() -> None:
    [service] = Project(ROOT).yaml("azure.yaml")["services"].values()

    assert service["project"] == "."
