"""The workflows can only run on GitHub. What can be told here: they read, ask for little, and call what exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.settings import Settings
from tests.acceptance.target import FEATURES, lacking, named_target
from tests.infra.project import ROOT, Project

# https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator#usage-quotas
MAX_EMULATOR_CONNECTIONS = 10

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(params=WORKFLOWS, ids=lambda file: file.name)
def workflow(request: pytest.FixtureRequest) -> Any:
    return read(request.param)


def read(file: Path) -> Any:
    return Project(ROOT).yaml(str(file.relative_to(ROOT)))


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def commands(workflow: Any) -> str:
    return "\n".join(step.get("run", "") for step in steps(workflow))


def test_there_is_one_for_the_code_the_app_the_infrastructure_and_the_emulators() -> None:
    assert [file.name for file in WORKFLOWS] == ["ci.yml", "deploy.yml", "emulators.yml", "infra.yml"]


def test_a_workflow_may_read_and_only_what_logs_in_gets_a_token(workflow: Any) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        logs_in = any(step.get("uses", "").startswith("azure/login@") for step in job["steps"])
        assert job.get("permissions") == ({"contents": "read", "id-token": "write"} if logs_in else None)


def test_there_is_no_secret_in_a_workflow(workflow: Any) -> None:
    assert "secrets." not in json.dumps(workflow, default=str)


def test_every_job_ends_in_bounded_time(workflow: Any) -> None:
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 60


def test_actions_are_pinned_and_a_checkout_leaves_no_credentials(workflow: Any) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_what_an_outsider_writes_is_never_put_into_a_script(workflow: Any) -> None:
    assert "${{" not in commands(workflow)


def test_every_make_target_exists(workflow: Any) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    called = set(re.findall(r"\bmake ([a-z-]+)", commands(workflow)))

    assert called
    assert called <= targets


def test_every_file_that_is_named_exists(workflow: Any) -> None:
    for name in re.findall(
        r"\b(?:infra/[\w./-]+\.\w+|local\.settings\.sample\.json)", json.dumps(workflow, default=str)
    ):
        assert (ROOT / name).exists(), name


def test_every_folder_of_tests_that_is_run_exists(workflow: Any) -> None:
    for folder in re.findall(r"python -m pytest (\S+)", commands(workflow)):
        assert list((ROOT / folder).glob("test_*.py")), folder


@pytest.mark.timeout(120)
def test_every_command_of_the_project_exists_with_its_options(workflow: Any) -> None:
    called = re.findall(r"python -m (local|relay) (\w+)([^\n]*)", commands(workflow))
    for package, command, options in called:
        shown = subprocess.run(
            [sys.executable, "-m", package, command, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for option in re.findall(r"--[a-z-]+", options):
            assert option in shown.stdout, f"{package} {command} {option}"


def test_the_code_is_tested_on_the_oldest_python_and_on_that_of_azure() -> None:
    ci = read(ROOT / ".github/workflows/ci.yml")

    assert ci["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    for target in ("lint", "types", "worker-test", "test"):
        assert f"make {target}" in commands(ci).splitlines()


def test_the_real_compiler_builds_lints_and_tells_what_would_change() -> None:
    infra = commands(read(ROOT / ".github/workflows/infra.yml"))

    for command in (
        "az bicep build --file",
        "az bicep lint",
        "az bicep build-params",
        "group what-if",
        "make infra-check",
    ):
        assert command in infra, command


def test_the_app_is_published_by_the_commands_of_the_docs_after_the_tests_and_one_at_a_time() -> None:
    deploy = read(ROOT / ".github/workflows/deploy.yml")
    documented = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")

    assert deploy["jobs"]["deploy"]["needs"] == "test"
    assert "make test" in commands(deploy).splitlines()
    assert deploy["concurrency"] == {"group": "deploy", "cancel-in-progress": False}
    publish = re.findall(r"az functionapp deployment source config-zip [^\n`]+", documented)
    assert [line.replace("$group", "$RESOURCE_GROUP") for line in publish] == re.findall(
        r"az functionapp deployment source config-zip [^\n]+", commands(deploy)
    )


def test_the_app_is_found_by_its_tag_and_the_function_by_its_name() -> None:
    script = commands(read(ROOT / ".github/workflows/deploy.yml"))
    app = Project(ROOT).trial.one("Microsoft.Web/sites")
    tags, scale = app.at("tags"), app.at("properties.functionAppConfig.scaleAndConcurrency")
    source = (ROOT / "function_app.py").read_text(encoding="utf-8")
    [function] = re.findall(r'^@app\.function_name\("(\w+)"\)', source, re.MULTILINE)

    assert f"tags.\\\"azd-service-name\\\"=='{tags['azd-service-name']}'" in script
    assert f'grep --quiet "/{function}$"' in script
    assert [each["name"] for each in scale["alwaysReady"]] == [f"function:{function}"]


def test_the_linters_rules_are_errors() -> None:
    rules = Project(ROOT).json("infra/bicepconfig.json")["analyzers"]["core"]["rules"]
    for rule in (
        "no-unused-params",
        "outputs-should-not-contain-secrets",
        "no-hardcoded-location",
        "secure-parameter-default",
    ):
        assert rules[rule] == {"level": "error"}


def test_the_tests_that_can_run_anywhere_run_on_the_emulators_with_settings_they_take() -> None:
    emulators = read(ROOT / ".github/workflows/emulators.yml")
    (step,) = [each for each in steps(emulators) if "pytest tests/acceptance" in each.get("run", "")]
    assert 'source "$SETTINGS"' in step["run"]
    assert "to_entries" in commands(emulators).partition("pytest tests/acceptance")[0]
    values = Project(ROOT).json("local.settings.sample.json")["Values"]

    target = named_target({**emulators["jobs"]["smoke"]["env"], **values, **step["env"]})

    assert target is not None
    assert target.subscription in entities_subscriptions()
    assert Settings.from_environment(target.environment).senders < MAX_EMULATOR_CONNECTIONS
    assert lacking(target.environment) < FEATURES.keys()


def entities_subscriptions() -> list[str]:
    """Those of the emulators' one topic that take every event, in sessions."""
    [namespace] = Project(ROOT).json("infra/emulators/Config.json")["UserConfig"]["Namespaces"]
    return [
        each["Name"]
        for each in namespace["Topics"][0]["Subscriptions"]
        if each["Properties"]["RequiresSession"] and "Rules" not in each
    ]
