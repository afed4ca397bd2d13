"""The files for contributors and editors: each parses, and what it names exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.infra.project import ROOT, SITES, Project

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

    assert "`python -m relay check`" in fields["check"]["attributes"]["label"]
    for name in ("what", "reproduce", "check", "versions"):
        assert fields[name]["validations"] == {"required": True}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_path_and_link_of_a_document_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|py|json|yaml|toml))`", text)
    linked = re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", text)
    gitignored = {"local.settings.json"}

    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= targets()
    for path in {*named, *linked} - gitignored:
        assert (ROOT / path).exists() or list((ROOT / ".github/workflows").glob(path)), path


def test_the_hooks_run_the_linters_that_make_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [repository] = read(".pre-commit-config.yaml")["repos"]
    entries = {each["id"]: each["entry"] for each in repository["hooks"]}

    assert list(entries) == ["ruff", "ruff-format", "mypy"]
    for entry in entries.values():
        tool = re.match(r"\.venv/bin/python -m (ruff check|ruff format|mypy)", entry)
        assert tool, entry
        assert f"-m {tool[1]}" in makefile


def test_dependabot_watches_every_requirements_file_and_the_workflows() -> None:
    updates = read(".github/dependabot.yml")["updates"]
    folders = {file.parent for file in (*ROOT.glob("requirements*.txt"), *ROOT.glob("*/pyproject.toml"))}

    watched = {ROOT / each["directory"].strip("/") for each in updates if each["package-ecosystem"] == "pip"}
    assert watched == folders
    assert [each["directory"] for each in updates if each["package-ecosystem"] == "github-actions"] == ["/"]


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
