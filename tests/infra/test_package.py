"""azd restores the requirements and uploads only the app; the files for contributors and editors parse."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from infra import package
from relay.routes.file import FILE
from tests.infra.project import ROOT, SITES, Project
from tests.support.watchdog import WATCHDOG_S

DEPLOYED = {"function_app.py", "host.json", "requirements.txt", "relay", "outbox_relay"}
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
        timeout=WATCHDOG_S,
        check=False,
    )


def required(text: str) -> set[str]:
    return set(re.findall(r"^([\w-]+==[\w.]+)", text, re.MULTILINE))


@pytest.mark.slow
def test_a_restore_installs_the_requirements_of_the_app(folder: Path) -> None:
    result = built(folder)

    assert result.returncode == 0, result.stderr
    [egg_info] = folder.glob("*.egg-info")
    wanted = required((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    assert len(wanted) >= 8
    assert required((egg_info / "requires.txt").read_text(encoding="utf-8")) == wanted
    assert not (egg_info / "top_level.txt").read_text(encoding="utf-8").strip(), "a module would be installed"


@pytest.mark.slow
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
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S, check=True
    ).stdout
    return {path.partition("/")[0] for path in listed.splitlines()}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_azd_uploads_the_app_and_nothing_else() -> None:
    there = versioned() | set(UNVERSIONED)

    kept = {name for name in there | {FILE} if not any(fnmatch(name, pattern) for pattern in ignored())}
    assert kept == DEPLOYED | {FILE}


@pytest.fixture(scope="module")
def uploaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository that .funcignore, whose patterns are those of .gitignore, does not exclude."""
    app = tmp_path_factory.mktemp("app")
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
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=WATCHDOG_S, check=True
    ).stdout


IMPORT = """
import function_app
from outbox_relay import changefeed
from outbox_relay.changefeed.install import migrations
assert migrations("postgresql") and migrations("sqlserver")
print(changefeed.__file__, function_app.__file__, sep="\\n")
"""


def plain_environment() -> dict[str, str]:
    """Return the environment of this process without what names Python's packages; nothing is written there."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "SYSTEMROOT", "LANG")}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_what_is_uploaded_suffices_for_an_outbox_in_sql(uploaded: Path) -> None:
    settings = {
        "SQL": "postgresql://relay@example.postgres.database.azure.com/outbox",
        "SERVICEBUS__fullyQualifiedNamespace": "example.servicebus.windows.net",
    }
    suffixes = {path.suffix for path in uploaded.rglob("*") if path.is_file()}

    result = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=uploaded,
        env=plain_environment() | settings,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert all(Path(path).is_relative_to(uploaded) for path in result.stdout.split()), result.stdout
    assert suffixes == {".py", ".sql", ".json", ".txt", ".typed"}
    assert not list(uploaded.rglob("test*"))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_what_is_uploaded_says_where_the_operators_commands_are(uploaded: Path) -> None:
    # -S: without the packages of this Python.
    command = [sys.executable, "-S", "-m", "relay", "check"]
    ended = subprocess.run(
        command,
        cwd=uploaded,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "'outbox_relay.operator' is missing" in ended.stderr
    assert "-m pip install outbox-relay-operator" in ended.stderr


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_the_zip_has_what_is_uploaded_and_the_locked_requirements(uploaded: Path, tmp_path: Path) -> None:
    made = packed(tmp_path / "relay.zip")
    wanted = {str(path.relative_to(uploaded)): path.read_bytes() for path in uploaded.rglob("*") if path.is_file()}

    assert made == wanted | {"requirements.txt": (ROOT / "requirements.lock").read_bytes()}
    assert {name.partition("/")[0] for name in made} - {FILE} == DEPLOYED


def packed(archive: Path) -> dict[str, bytes]:
    """Runs the command that packs the app."""
    command = [sys.executable, "infra/package.py", str(archive)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S, check=True)
    return contents(archive)


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        root = tmp_path / name
        for path in (
            *package.FILES.values(),
            "relay/a.py",
            "relay/__pycache__/a.pyc",
            "outbox_relay/changefeed/README.md",
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path, encoding="utf-8")
        (root / FILE).write_text("unrouted = 'ignore'", encoding="utf-8")
        (root / "relay").joinpath("a.py").chmod(0o600 if name == "first" else 0o755)
        os.utime(root / "host.json", (1_000_000_000, 1_000_000_000 if name == "first" else 1_500_000_000))
        package.pack(root, tmp_path / f"{name}.zip")

    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    assert set(contents(tmp_path / "first.zip")) == {*package.FILES, FILE, "relay/a.py"}


def test_a_zip_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "infra/package.py", str(tmp_path / "missing" / "relay.zip")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S, check=False)

    assert ended.returncode == 1
    assert re.fullmatch(r"\S+relay\.zip was not written: .*\n", ended.stderr)


def test_the_documented_command_packs_by_the_same_script() -> None:
    text = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")

    assert re.search(r"python3? infra/package\.py \S*relay\.zip", text)
    assert "zip -r" not in text


def test_azd_deploys_from_the_root() -> None:
    [service] = Project(ROOT).yaml("azure.yaml")["services"].values()

    assert service["project"] == "."


# The files for contributors and editors: each parses, and what it names exists


EDITORS = (".vscode", ".devcontainer")
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
DOCUMENTS = ("CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md")


def read(path: str) -> Any:
    text = (ROOT / path).read_text(encoding="utf-8")
    return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("folder", EDITORS)
def test_every_file_of_an_editor_parses(folder: str) -> None:
    files = list((ROOT / folder).glob("*.json"))

    assert files
    assert all(isinstance(read(str(file.relative_to(ROOT))), dict) for file in files)


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_an_issue_form_has_a_field_for_everything_it_asks(file: Path) -> None:
    form = read(str(file.relative_to(ROOT)))
    if file.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert form["name"]
    assert form["description"]
    assert len({each["id"] for each in fields}) == len(fields)
    assert all(each["attributes"]["label"] for each in fields)


def test_a_bug_report_asks_for_the_check_and_the_versions() -> None:
    fields = {each.get("id"): each for each in read(".github/ISSUE_TEMPLATE/bug.yml")["body"]}

    assert "`python -m relay check --json`" in fields["check"]["attributes"]["label"]
    for name in ("what", "reproduce", "check", "versions"):
        assert fields[name]["validations"] == {"required": True}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_path_and_link_of_a_document_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|py|json|yaml|toml))`", text)
    linked = re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", text)
    # None exists in a clone: .gitignore names the first two, and the third is an app's own.
    absent = {path for path in named if path in ("local.settings.json", FILE) or path.startswith(".local/")}

    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= targets()
    for path in {*named, *linked} - absent:
        assert (ROOT / path).exists() or list((ROOT / ".github/workflows").glob(path)), path


def test_the_hooks_run_the_linters_that_make_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [repository] = read(".pre-commit-config.yaml")["repos"]
    # tests/unit/test_commit_messages.py runs the hook of messages.
    entries = {each["id"]: each["entry"] for each in repository["hooks"] if "stages" not in each}

    assert list(entries) == ["ruff", "ruff-format", "mypy"]
    for entry in entries.values():
        tool = re.match(r"\.venv/bin/python -m (ruff check|ruff format|mypy)", entry)
        assert tool, entry
        assert f"-m {tool[1]}" in makefile


def watched(ecosystem: str) -> set[Path]:
    """The folders in which Dependabot updates packages of an ecosystem."""
    found = set()
    for each in read(".github/dependabot.yml")["updates"]:
        if each["package-ecosystem"] == ecosystem:
            found |= {ROOT / name.strip("/") for name in each.get("directories", [each.get("directory")])}
    return found


def folders_of(*patterns: str) -> set[Path]:
    """The folders of the repository that have a versioned file of such a name."""
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    files = [Path(path) for path in listed if (ROOT / path).is_file()]
    return {ROOT / file.parent for file in files if any(fnmatch(file.name, pattern) for pattern in patterns)}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")
def test_dependabot_watches_packages_images_and_workflows() -> None:
    assert watched("pip") == folders_of("requirements*.txt", "pyproject.toml")
    assert watched("docker") == folders_of("Dockerfile")
    assert watched("npm") == folders_of("package.json")
    assert watched("nuget") == folders_of("*.csproj")
    assert watched("github-actions") == {ROOT}


def test_dependabot_updates_the_samples_together_with_what_the_tests_run() -> None:
    """Ungrouped, it would make a pull request for each folder, and each would fail, as the versions differ."""
    patterns = [
        pattern.lower()
        for each in read(".github/dependabot.yml")["updates"]
        if any(name.startswith("/samples") for name in each.get("directories", ()))
        for group in each["groups"].values()
        for pattern in group["patterns"]
    ]
    lines = [
        line
        for file in (ROOT / "samples").rglob("requirements.txt")
        for line in file.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    names = [re.split(r"[\[=]", line)[0] for line in lines]
    names += json.loads((ROOT / "samples/node_consumer/package.json").read_text(encoding="utf-8"))["dependencies"]

    assert len(names) > 10
    assert [name for name in names if not any(fnmatch(name.lower(), pattern) for pattern in patterns)] == []


def test_the_debugger_starts_tasks_that_exist_in_the_environment_of_make() -> None:
    tasks = {each["label"]: each for each in read(".vscode/tasks.json")["tasks"]}
    launched = read(".vscode/launch.json")["configurations"]
    before = [each["preLaunchTask"] for each in launched if "preLaunchTask" in each]
    settings = read(".vscode/settings.json")

    assert {*before} <= {*tasks}
    assert {name for each in tasks.values() for name in each.get("dependsOn", ())} <= {*tasks}
    # F5 starts the first: the stack with its own host, which needs no other installation.
    assert (launched[0]["module"], launched[0]["args"]) == ("local", ["up"])
    ready = tasks["local stack"]["problemMatcher"]["background"]["endsPattern"]
    assert re.search(ready, (ROOT / "local" / "stack" / "command.py").read_text(encoding="utf-8"))
    commands = [each["command"] for each in tasks.values() if each["type"] == "shell"]
    made = {command.removeprefix("make ") for command in commands if command.startswith("make ")}
    assert made <= targets()
    assert {*commands} - {f"make {each}" for each in made} == {".venv/bin/python -m local up --no-functions"}
    assert f"{settings['azureFunctions.pythonVenv']}/bin/python" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert settings["python.defaultInterpreterPath"].endswith("/.venv/bin/python")
    for path in (*settings["python.testing.pytestArgs"], *settings["python.analysis.extraPaths"]):
        assert (ROOT / path).is_dir()


def test_the_container_has_the_deployed_python_and_forwards_the_ports_of_the_emulators() -> None:
    container = read(".devcontainer/devcontainer.json")
    runtime = Project(ROOT).trial.one(SITES).at("properties.functionAppConfig.runtime.version")
    services = read("infra/emulators/compose.yaml")["services"].values()
    emulated = {int(port.rpartition(":")[2]) for service in services for port in service.get("ports", [])}

    assert f"python:{runtime}-" in container["image"]
    assert container["postCreateCommand"].removeprefix("make ") in targets()
    # 7070 is the port of the local stack itself, 7071 that of func start.
    assert {*container["forwardPorts"]} - {7070, 7071} <= emulated
    assert {int(port) for port in container["portsAttributes"]} == {*container["forwardPorts"]}


def test_the_changelog_begins_with_what_is_not_released_yet() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert headings[0] == "Unreleased"
