"""Only GitHub can run the workflows. These tests check their syntax, permissions, pins and commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import local.__main__
import outbox_relay.operator.cli.main
from docs.site.__main__ import FOLDER
from local.make_venv import included, read_groups
from relay.config.settings import Settings
from tests.acceptance.target import FEATURES, lacking, named_target
from tests.infra.compiler import find_compiler
from tests.infra.project import ROOT, Project
from tests.release.components import APP, LIBRARIES
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.test_remedy import SHELLS

# https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator#usage-quotas

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(params=WORKFLOWS, ids=lambda file: file.name)
def workflow(request: pytest.FixtureRequest) -> Any:
    return read(request.param)


def read(file: Path) -> Any:
    return Project(ROOT).yaml(str(file.relative_to(ROOT)))


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def commands(workflow: Any) -> str:
    return "\n".join(step.get("run", "") for step in steps(workflow))


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert [file.stem for file in WORKFLOWS] == [
        *("ci", "deploy", "docs", "emulators", "infra", "newest", "release", "weekly"),
    ]


PERMISSIONS = {
    "azure/login": {"id-token": "write"},
    "actions/deploy-pages": {"pages": "write", "id-token": "write"},
    "actions/attest-build-provenance": {"id-token": "write", "attestations": "write"},
    "pypa/gh-action-pypi-publish": {"id-token": "write"},
}
"""The permissions of an action in addition to reading the repository."""
COMMANDS = {
    "gh release create": {"contents": "write"},
    "gh release download": {"contents": "read"},
    "gh attestation verify": {"attestations": "read"},
    "docker login ghcr.io": {"packages": "write"},
    # It runs gh issue.
    ".ci/newest.py report": {"issues": "write"},
}
"""The permissions of a command."""


def needed(job: Any) -> dict[str, str] | None:
    """The least permissions of a job; None if the workflow's own suffice."""
    found: dict[str, str] = {}
    for step in job.get("steps", []):
        found |= PERMISSIONS.get(step.get("uses", "").partition("@")[0], {})
        for command, permissions in COMMANDS.items():
            if command in step.get("run", ""):
                found |= permissions
    for called in (read(ROOT / path) for path in [job.get("uses", "")] if path.startswith("./")):
        for inner in called["jobs"].values():
            found |= needed(inner) or {}
    checks_out = any(step.get("uses", "").startswith("actions/checkout@") for step in job.get("steps", []))
    return ({"contents": "read"} if checks_out else {}) | found if found else None


def test_the_newest_packages_run_in_a_job_that_may_write_nothing() -> None:
    jobs = read(ROOT / ".github/workflows/newest.yml")["jobs"]

    assert "permissions" not in jobs["packages"]
    assert ".ci/newest.py try found.json" in [step.get("run") for step in jobs["packages"]["steps"]]
    assert jobs["host"]["uses"] == "./.github/workflows/emulators.yml"
    # The issue also reports a job that did not end.
    assert (jobs["report"]["if"], jobs["report"]["needs"]) == ("always()", ["packages", "host"])
    assert {name for name, job in jobs.items() if "issues" in job.get("permissions", {})} == {"report"}


def test_every_job_has_the_least_permissions(workflow: Any) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job.get("permissions") == needed(job), name


def test_there_is_no_secret_in_a_workflow(workflow: Any) -> None:
    assert "secrets." not in json.dumps(workflow, default=str)


def test_every_job_ends_in_bounded_time(workflow: Any) -> None:
    for job in workflow["jobs"].values():
        # A job that calls a workflow has the time limits of that one's jobs.
        assert ("uses" in job) is ("timeout-minutes" not in job)
        assert 0 < job.get("timeout-minutes", 1) <= 60


PINNED = re.compile(r"uses: ([\w-]+/[\w-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)")


def test_every_action_is_pinned_by_commit_with_its_version_beside_it() -> None:
    pins: dict[str, set[tuple[str, str]]] = {}
    for file in WORKFLOWS:
        for line in re.findall(r"uses: .*", file.read_text(encoding="utf-8")):
            if line.startswith("uses: ./"):
                assert (ROOT / line.removeprefix("uses: ")).is_file(), line
                continue
            pinned = PINNED.fullmatch(line)
            assert pinned, f"{file.name}: {line}"
            pins.setdefault(pinned[1], set()).add((pinned[2], pinned[3]))
    assert len(pins) >= 8
    assert all(len(versions) == 1 for versions in pins.values()), pins


def test_a_checkout_leaves_no_credentials(workflow: Any) -> None:
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_scripts_contain_no_expressions_which_outsiders_could_inject_into(workflow: Any) -> None:
    assert "${{" not in commands(workflow)


def test_every_make_target_exists(workflow: Any) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    called = set(re.findall(r"\bmake ([a-z-]+)", commands(workflow)))

    assert called <= targets


def test_every_file_that_is_named_exists(workflow: Any) -> None:
    root = r"local\.settings\.sample\.json|requirements[\w-]*\.(?:txt|lock)"
    named = rf"\b(?:infra/[\w./-]+\.\w+|{root})|(?<!\S)\.ci/[\w.]+"
    for name in re.findall(named, f"{json.dumps(workflow, default=str)}\n{commands(workflow)}"):
        assert (ROOT / name).exists(), name


def test_every_folder_of_tests_that_is_run_exists(workflow: Any) -> None:
    for line in re.findall(r"python -m pytest (.+)", commands(workflow)):
        for folder in re.findall(r"tests/\S+", line):
            assert list((ROOT / folder).glob("test_*.py")), folder


PROGRAMS = {"local": local.__main__.main, "relay": outbox_relay.operator.cli.main.main}


def test_every_command_of_the_project_exists_with_its_options(
    workflow: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    called = re.findall(r"python -m (local|relay) (\w+)([^\n]*)", commands(workflow))
    for package, command, options in called:
        with pytest.raises(SystemExit) as ended:
            PROGRAMS[package]([command, "--help"])
        shown = capsys.readouterr().out
        assert ended.value.code == 0, f"{package} {command}"
        for option in {*re.findall(r"--[a-z-]+", options)} - {"--help"}:
            assert option in shown, f"{package} {command} {option}"


def test_everything_runs_on_the_oldest_python_and_on_azures_and_the_unit_tests_on_the_rest() -> None:
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    full, unit = jobs["full"], jobs["unit"]["strategy"]["matrix"]
    script = [line.strip() for line in (ROOT / ".ci/run").read_text(encoding="utf-8").split("\n")]

    assert full["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert ".ci/run" in [step.get("run") for step in full["steps"]]
    run = [
        re.sub(r"^step \S+ (nice -n 19 )?", "", line.removesuffix(" &")).partition(" PROCESSES=")[0]
        for line in script
    ]
    for target in ("lint", "types", "test", "test-slow", "spec", "docs DOCS=--build", "worker-test"):
        assert f"make {target}" in run
    # Nothing is installed while tests run.
    installed = run[run.index("make lint") - 1]
    groups = {
        name for each in re.findall(r"installed-([\w-]+)", installed) for name in included(each, read_groups())
    }
    assert groups >= {"test-all", "lint", "types", "spec", "docs"}
    for name in (line.removesuffix("=$!") for line in script if line.endswith("=$!")):
        assert f'wait "${name}"' in script
    assert {system.partition("-")[0] for system in unit["system"]} == {"ubuntu", "macos", "windows"}
    assert unit["python"] == ["3.11", "3.12", "3.13", "3.14"]
    skipped = {each["python"] for each in unit["exclude"] if each["system"].startswith("ubuntu")}
    assert skipped == set(full["strategy"]["matrix"]["python"])


def test_all_releases_are_rehearsed_every_week() -> None:
    weekly = commands(read(ROOT / ".github/workflows/weekly.yml"))

    assert "make release-check PYTHON=python3.11" in weekly.splitlines()


def test_suggested_commands_are_tried_in_every_shell_that_they_are_made_for() -> None:
    full = read(ROOT / ".github/workflows/ci.yml")["jobs"]["full"]
    environment = next(step["env"] for step in full["steps"] if step.get("run") == ".ci/run")

    assert environment["TEST_SHELLS"].split() == list(SHELLS)
    assert {"zsh", "fish"} <= set(commands({"jobs": {"full": full}}).split())


COMPONENTS = {
    "app": "relay/__init__.py",
    "outbox": "packages/outbox/pyproject.toml",
    "inbox": "packages/inbox/src/outbox_relay/inbox/__init__.py",
    "emulators": "packages/emulators/src/outbox_relay/emulators/__init__.py",
    "changefeed": "outbox_relay/changefeed/version.py",
    "command_line": "packages/command_line/pyproject.toml",
    "operator": "relay/__init__.py",
}


def version_in(file: str) -> str:
    """Return the version that a file of the repository states."""
    text = (ROOT / file).read_text(encoding="utf-8")
    [found] = re.findall(r'^(?:__version__|version) = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE)
    return str(found)


def test_a_tag_releases_the_component_that_it_names_after_the_tests() -> None:
    release = read(ROOT / ".github/workflows/release.yml")
    documented = (ROOT / "docs/releasing.md").read_text(encoding="utf-8")

    supported = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    # YAML 1.1 reads the key `on` as true.
    assert release[True]["push"]["tags"] == [f"{name}-v*" for name in COMPONENTS]
    assert release["jobs"]["test"]["uses"] == "./.github/workflows/ci.yml"
    for job in ("pypi", "github", "image"):
        assert release["jobs"][job]["needs"] == ["test", "build"]
    for name, file in COMPONENTS.items():
        assert f"| `{file}` | `{name}-v{version_in(file)}` |" in documented
        assert f"(`{name}-v…`)" in supported


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_tag_has_to_match_the_version_of_its_component(component: str, tmp_path: Path) -> None:
    steps_of_build = read(ROOT / ".github/workflows/release.yml")["jobs"]["build"]["steps"]
    [script] = [step["run"] for step in steps_of_build if "version=" in step.get("run", "")]
    for each in COMPONENTS.values():
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text((ROOT / each).read_text(encoding="utf-8"), encoding="utf-8")

    def compared(name: str) -> int:
        shutil.rmtree(tmp_path / "dist", ignore_errors=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "GITHUB_REF_NAME": name, "GITHUB_ENV": str(tmp_path / "env")}
        shell = ["bash", "-e", "-o", "pipefail", "-c", script]
        return subprocess.run(shell, cwd=tmp_path, env=environment, timeout=WATCHDOG_S, check=False).returncode

    assert compared(f"{component}-v{version_in(COMPONENTS[component])}") == 0
    assert (tmp_path / "env").read_text(encoding="utf-8") == f"COMPONENT={component}\n"
    assert compared(f"{component}-v99.0.0") != 0


def test_what_is_published_is_what_the_rehearsal_built() -> None:
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    built = [each.get("run", "") for each in jobs["build"]["steps"]]

    assert 'make release-check PYTHON=python RELEASE="--only $COMPONENT --output release"' in built
    assert [
        each["with"]["path"] for each in jobs["build"]["steps"] if "upload-artifact" in each.get("uses", "")
    ] == [
        "release/dist",
        "release/sbom",
    ]
    assert {each.name for each in LIBRARIES} | {APP} == {*COMPONENTS}
    packages = [each.parent.relative_to(ROOT) for each in ROOT.glob("packages/*/pyproject.toml")]
    assert {each.folder for each in LIBRARIES} == {"outbox_relay/changefeed", *map(str, packages)}


def test_the_real_compiler_builds_every_template_and_shows_what_would_change(tmp_path: Path) -> None:
    workflow = read(ROOT / ".github/workflows/infra.yml")
    ran = [step.get("run", "") for step in workflow["jobs"]["build"]["steps"]]

    # make infra-check finds the compiler that az has installed: tests/infra/test_compiler.py.
    assert ran.index("az bicep install") < ran.index("make infra-check")
    az = tmp_path / "bin/bicep"
    az.parent.mkdir()
    az.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BICEP", raising=False)
        patch.setenv("PATH", str(tmp_path))
        patch.setenv("AZURE_CONFIG_DIR", str(tmp_path))
        assert find_compiler() == str(az)
    assert "group what-if" in commands(workflow)
    files = workflow["jobs"]["what-if"]["strategy"]["matrix"]["parameters"]
    # main.bicepparam is azd's: its values are those of an environment.
    assert set(files) == {
        file.name.removesuffix(".bicepparam") for file in (ROOT / "infra").glob("*.*.bicepparam")
    }


def test_a_pull_request_shows_the_difference_of_the_snapshots(tmp_path: Path) -> None:
    workflow = read(ROOT / ".github/workflows/infra.yml")
    [step] = [each for each in steps(workflow) if each.get("name") == "Show the difference of the snapshots"]
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (tmp_path / "infra").mkdir()
    subprocess.run([*git, "init", "--quiet"], check=True)
    for text in ("before", "after"):
        (tmp_path / "infra/main.snapshot.json").write_text(f"{text}\n", encoding="utf-8")
        subprocess.run([*git, "add", "infra"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", text], check=True)
    summary = tmp_path / "summary"

    subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "GITHUB_STEP_SUMMARY": str(summary)},
        timeout=WATCHDOG_S,
        check=True,
    )

    assert "-before\n+after\n```" in summary.read_text(encoding="utf-8")


def test_the_modules_are_all_used_by_a_template() -> None:
    used = {
        name
        for file in (ROOT / "infra").glob("*.bicep")
        for name in re.findall(r"^module \w+ '(modules/[\w-]+\.bicep)'", file.read_text("utf-8"), re.MULTILINE)
    }
    nested = {
        f"modules/{name}"
        for file in (ROOT / "infra/modules").glob("*.bicep")
        for name in re.findall(r"^module \w+ '([\w-]+\.bicep)'", file.read_text("utf-8"), re.MULTILINE)
    }

    imported = {
        f"modules/{name}"
        for file in (ROOT / "infra/modules").glob("*.bicep")
        for name in re.findall(r"^import \{.*\} from '([\w-]+\.bicep)'", file.read_text("utf-8"), re.MULTILINE)
    }

    # So that building the templates builds them.
    there = {f"modules/{file.name}" for file in (ROOT / "infra/modules").glob("*.bicep")}
    assert used | nested | imported == there


def test_the_zip_that_is_deployed_is_the_one_that_was_attested() -> None:
    release = read(ROOT / ".github/workflows/release.yml")["jobs"]
    deploy = read(ROOT / ".github/workflows/deploy.yml")
    [job] = deploy["jobs"].values()
    ran = [step.get("run", step.get("uses", "")) for step in job["steps"]]
    order = [next(number for number, run in enumerate(ran) if part in run) for part in PARTS_OF_A_DEPLOYMENT]

    assert order == sorted(order)
    [download, verify, publish] = [ran[number] for number in order]
    assert 'download "$TAG" --repo "$GITHUB_REPOSITORY"' in download
    assert '--signer-workflow "$GITHUB_REPOSITORY/.github/workflows/release.yml"' in verify
    assert '--source-ref "refs/tags/$TAG"' in verify
    assert all("relay.zip" in each for each in (download, verify, publish))
    # Nothing is built here that was not attested.
    assert not [run for run in ran if "checkout" in run or "zip -r" in run or "package.py" in run]
    attested = [each for each in release["build"]["steps"] if "attest-build-provenance" in each.get("uses", "")]
    assert [each["with"] for each in attested] == [{"subject-path": "release/dist/*"}]


def test_the_image_that_is_published_is_the_one_that_was_attested() -> None:
    image = read(ROOT / ".github/workflows/release.yml")["jobs"]["image"]
    _, build, attest = image["steps"]

    assert image["if"] == "startsWith(github.ref_name, 'app-')"
    assert {"IMAGE", "DIGEST"} <= {*re.findall(r'echo "(\w+)=', build["run"])}
    assert attest["with"] == {
        "subject-name": "${{ env.IMAGE }}",
        "subject-digest": "${{ env.DIGEST }}",
        "push-to-registry": True,
    }


PARTS_OF_A_DEPLOYMENT = ("gh release download", "gh attestation verify", "config-zip")


def test_the_app_is_deployed_after_its_release_or_by_hand_one_at_a_time() -> None:
    release = read(ROOT / ".github/workflows/release.yml")["jobs"]
    deploy = read(ROOT / ".github/workflows/deploy.yml")
    documented = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")

    assert release["github"]["needs"] == ["test", "build"]
    assert (release["deploy"]["needs"], release["deploy"]["with"]) == ("github", {"tag": "${{ github.ref_name }}"})
    assert release["deploy"]["if"] == "startsWith(github.ref_name, 'app-')"
    # YAML 1.1 reads the key `on` as true.
    assert set(deploy[True]) == {"workflow_call", "workflow_dispatch"}
    assert all(each["inputs"]["tag"]["required"] is True for each in deploy[True].values())
    assert deploy["jobs"]["deploy"]["concurrency"] == {"group": "deploy", "cancel-in-progress": False}
    publish = re.findall(r"az functionapp deployment source config-zip [^\n`]+", documented)
    assert {line.replace("$group", "$RESOURCE_GROUP") for line in publish} == set(
        re.findall(r"az functionapp deployment source config-zip [^\n]+", commands(deploy))
    )


def test_the_locked_packages_are_installed_on_what_they_are_deployed_to() -> None:
    job = read(ROOT / ".github/workflows/ci.yml")["jobs"]["lock"]
    install = "python -m pip install --require-hashes --only-binary=:all: -r "

    assert job["strategy"]["matrix"]["system"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    # The app's packages alone suffice for the app.
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        f"{install}requirements.lock",
        "python -m pip check",
        'python -c "import function_app"',
        f"{install}packages/operator/requirements.lock",
        "python -m pip check",
        "python -m relay check --help",
    ]


def test_the_app_is_found_by_its_tag_and_the_function_by_its_name() -> None:
    script = commands(read(ROOT / ".github/workflows/deploy.yml"))
    app = Project(ROOT).trial.one("Microsoft.Web/sites")
    tags, scale = app.at("tags"), app.at("properties.functionAppConfig.scaleAndConcurrency")
    source = (ROOT / "relay/backends/cosmos/backend.py").read_text(encoding="utf-8")
    # The deployment has an outbox in Cosmos DB. Further streams add to the name.
    function, *_ = re.findall(r'function_name\("(\w+)"', source, re.MULTILINE)

    assert f"tags.\\\"azd-service-name\\\"=='{tags['azd-service-name']}'" in script
    assert f'grep --quiet "/{function}"' in script
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


def test_the_acceptance_tests_run_on_the_emulators_with_valid_settings() -> None:
    emulators = read(ROOT / ".github/workflows/emulators.yml")
    (step,) = [each for each in steps(emulators) if "pytest tests/acceptance" in each.get("run", "")]
    assert 'source "$SETTINGS"' in step["run"]
    assert "to_entries" in commands(emulators).partition("pytest tests/acceptance")[0]
    values = Project(ROOT).json("local.settings.sample.json")["Values"]

    target = named_target({**emulators["jobs"]["smoke"]["env"], **values, **step["env"]})

    assert target is not None
    assert target.subscription in entities_subscriptions()
    settings = Settings.from_environment(target.environment)
    # The official emulator takes ten connections.
    assert settings.servicebus.pipelined or settings.servicebus.senders in range(1, 10)
    assert lacking(target.environment) < FEATURES.keys()


def entities_subscriptions() -> list[str]:
    """The subscriptions of the emulators' topic that receive every event, in sessions."""
    [namespace] = Project(ROOT).json("infra/emulators/Config.json")["UserConfig"]["Namespaces"]
    return [
        each["Name"]
        for each in namespace["Topics"][0]["Subscriptions"]
        if each["Properties"]["RequiresSession"] and "Rules" not in each
    ]


def test_the_site_that_is_built_is_published() -> None:
    docs = read(ROOT / ".github/workflows/docs.yml")
    uses = {step["uses"].partition("@")[0]: step for step in steps(docs) if "uses" in step}

    assert "make docs DOCS=--build PYTHON=python" in commands(docs).splitlines()
    assert uses["actions/upload-pages-artifact"]["with"]["path"] == str((FOLDER / "html").relative_to(ROOT))
    assert docs["jobs"]["publish"]["needs"] == "build"
