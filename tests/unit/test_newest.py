"""The weekly trial of the newest versions: what it installs and runs, and the one issue that it keeps."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.pages import ROOT

LINK = "https://github.com/o/r/actions/runs/7"


@pytest.fixture(scope="module")
def newest() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("newest_of_ci", ROOT / ".ci/newest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class Machine:
    """Answers commands by the words that they contain; anything else succeeds without output."""

    def __init__(self, answers: Mapping[str, tuple[int, str]] | None = None) -> None:
        self.answers = answers or {}
        self.commands: list[tuple[str, ...]] = []
        self.texts: list[str] = []

    def __call__(self, command: tuple[str, ...], text: str | None = None) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if text is not None:
            self.texts.append(text)
        for words, (code, output) in self.answers.items():
            if words in " ".join(command):
                return subprocess.CompletedProcess(command, code, output)
        return subprocess.CompletedProcess(command, 0, "")


MAVEN = """<metadata><groupId>com.azure</groupId><versioning>
<latest>4.100.0-beta.1</latest><release>4.100.0-beta.1</release>
<versions>
  <version>4.9.1</version>
  <version>4.90.0</version>
  <version>4.100.0-beta.1</version>
</versions></versioning></metadata>
"""
LISTS = {
    "https://repo1.maven.org/maven2/com/azure/azure-cosmos/maven-metadata.xml": MAVEN,
    "https://repo1.maven.org/maven2/com/azure/azure-messaging-servicebus/maven-metadata.xml": MAVEN,
    "https://proxy.golang.org/github.com/!azure/azure-sdk-for-go/sdk/data/azcosmos/@v/list": (
        "v1.9.0\nv1.10.0\nv1.11.0-beta.2\nv0.99.0\n"
    ),
    "https://proxy.golang.org/github.com/!azure/azure-sdk-for-go/sdk/messaging/azservicebus/@v/list": "v2.0.1\n",
    "https://api.nuget.org/v3-flatcontainer/microsoft.azure.cosmos/index.json": json.dumps(
        {"versions": ["3.9.0", "3.70.0", "3.71.0-preview.0"]}
    ),
    "https://api.nuget.org/v3-flatcontainer/azure.messaging.servicebus/index.json": '{"versions":["7.22.0"]}',
}


def fetch(url: str) -> str:
    if "ExtensionBundle" in url:
        return json.dumps(["3.99.0", "4.9.0", "4.100.1", "4.33.0", "5.0.0", "4.200.0-preview"])
    return LISTS[url]


def version(newest: ModuleType, known: str | None = "1.0.0", found: str | None = "1.0.0") -> Any:
    return newest.Version("azure-cosmos", known, found)


def test_every_part_is_installed_by_its_name_and_asked_for_its_version(newest: ModuleType) -> None:
    machine = Machine(
        {
            "func --version": (0, "4.99.1\n"),
            "bicep version": (0, "Bicep CLI version 0.60.1 (abc)\n"),
            "importlib.metadata": (0, "9.9.9\n"),
            "image inspect": (0, "mcr.microsoft.com/x@sha256:abc\n"),
        }
    )

    found = newest.find(machine, fetch)

    said = [" ".join(command) for command in machine.commands]
    for words in (
        "pip install --upgrade azure-cosmos azure-servicebus azure-functions",
        "--ignore-scripts --no-audit --no-fund --no-save @azure/cosmos@latest @azure/service-bus@latest",
        "npm install --global azure-functions-core-tools@latest",
        "az bicep install",
        "docker pull --quiet mcr.microsoft.com/azure-functions/python:4-python3.13",
        "docker pull --quiet mcr.microsoft.com/cosmosdb/linux/azure-cosmos-emulator:vnext-preview",
        "docker pull --quiet mcr.microsoft.com/azure-messaging/servicebus-emulator:latest",
    ):
        assert any(words in each for each in said), words
    assert found.failures == []
    versions = {each.name: each.newest for each in found.versions}
    assert versions["azure-servicebus"] == "9.9.9"
    assert versions["azure-functions-core-tools"] == "4.99.1"
    assert versions["Bicep"] == "0.60.1"
    assert versions[newest.HOST_IMAGE] == "sha256:abc"
    # The newest of host.json's range, by its numbers, without previews.
    assert versions["extension bundle"] == "4.100.1"
    assert newest.Found.read(str(found)) == found


def test_every_part_has_a_version_that_was_tried_before_or_none(newest: ModuleType) -> None:
    known = newest.known_versions()

    assert known.keys() == newest.newest_versions(Machine(), fetch).keys()
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert f"azure-cosmos=={known['azure-cosmos']} " in lock


def test_the_newest_versions_of_java_go_and_dotnet_are_looked_up_without_previews(newest: ModuleType) -> None:
    versions = newest.newest_versions(Machine(), fetch)

    assert {name: versions[name] for name in newest.LOOKED_UP} == {
        "com.azure:azure-cosmos": "4.90.0",
        "com.azure:azure-messaging-servicebus": "4.90.0",
        "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos": "1.10.0",
        "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus": "2.0.1",
        "Microsoft.Azure.Cosmos": "3.70.0",
        "Azure.Messaging.ServiceBus": "7.22.0",
    }


def test_the_versions_of_java_go_and_dotnet_are_those_that_the_pages_of_conformance_name(
    newest: ModuleType,
) -> None:
    known = newest.known_versions()
    folder = ROOT / "packages/emulators/docs/conformance"
    pages = {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in ("java", "go", "dotnet")}

    for page, names in (
        ("java", newest.JAVA_PACKAGES),
        ("go", newest.GO_MODULES),
        ("dotnet", newest.DOTNET_PACKAGES),
    ):
        for name in names:
            short = re.split("[:/]", name)[-1]
            assert known[name] is not None
            assert f"{short} {known[name]}" in pages[page]


def test_the_issue_says_which_versions_were_not_run(newest: ModuleType) -> None:
    other = newest.Version("com.azure:azure-cosmos", "4.81.0", "4.90.0")

    looked_up = newest.describe(newest.Found([other], []), "success", LINK)
    installed = newest.describe(newest.Found([version(newest, "0.9.0")], []), "success", LINK)

    assert "| `com.azure:azure-cosmos` | `4.81.0` | `4.90.0` |" in looked_up
    assert "Java, Go and .NET were looked up, and not run." in looked_up
    assert "not run" not in installed


def test_the_checks_are_the_quick_tests_those_of_javascript_and_the_compiler(newest: ModuleType) -> None:
    commands = [each.command for each in newest.checks()]

    assert commands[0][-2:] == ("-m", "not slow")
    named = [word for command in commands[1:] for word in command if word.endswith(".py")]
    assert len(named) == 3
    assert all((ROOT / name).is_file() for name in named)
    assert "tests/infra/test_compiler.py" in named


def test_a_step_that_fails_is_reported_and_the_others_run(newest: ModuleType) -> None:
    machine = Machine({"bicep install": (1, "no network"), "not slow": (2, "x" * 9_000 + "the end")})

    found = newest.find(machine, fetch)

    assert [each.name for each in found.failures] == ["install Bicep", "quick tests"]
    assert found.failures[1].output.endswith("xthe end")
    assert len(found.failures[1].output) == newest.MAX_TEXT
    assert any("tests/infra/test_compiler.py" in command for command in machine.commands)


@pytest.mark.parametrize("answer", ["no JSON", "[]"])
def test_a_list_that_cannot_be_read_is_an_unknown_version(newest: ModuleType, answer: str) -> None:
    def unreachable(_: str) -> str:
        raise OSError("unreachable")

    for ask in (lambda _: answer, unreachable):
        versions = newest.newest_versions(Machine(), ask)
        assert {versions[name] for name in ("extension bundle", *newest.LOOKED_UP)} == {None}


def test_a_program_that_is_missing_fails_its_step(newest: ModuleType) -> None:
    assert newest.run_command(("no-such-program-here",)).returncode == 127


def test_without_a_difference_or_a_failure_there_is_no_issue(newest: ModuleType) -> None:
    assert newest.describe(newest.Found([version(newest)], []), "success", LINK) is None


@pytest.mark.parametrize("host", ["failure", "cancelled", "skipped"])
def test_a_host_that_did_not_succeed_is_enough_for_an_issue(newest: ModuleType, host: str) -> None:
    text = newest.describe(newest.Found([version(newest)], []), host, LINK)

    assert f"official emulators: `{host}`" in text


@pytest.mark.parametrize("known", ["0.9.0", None])
def test_the_issue_has_the_versions_that_differ(newest: ModuleType, known: str | None) -> None:
    same = newest.Version("@azure/cosmos", "4.9.3", "4.9.3")

    text = newest.describe(newest.Found([version(newest, known), same], []), "success", LINK)

    before = "unknown" if known is None else f"`{known}`"
    assert f"| `azure-cosmos` | {before} | `1.0.0` |" in text
    assert "@azure/cosmos" not in text
    assert "Every check passed." in text
    assert LINK in text


def test_the_issue_has_the_checks_that_fail_also_that_of_the_host(newest: ModuleType) -> None:
    failures = [newest.Failure("quick tests", "```\n1 failed\n````")]

    text = newest.describe(newest.Found([version(newest)], failures), "failure", LINK)

    assert "## Failed: `quick tests`\n\n`````text\n```\n1 failed\n````\n`````\n" in text
    assert "official emulators: `failure`" in text
    assert "Every check passed." not in text


def test_the_text_of_a_stranger_is_no_markup_and_fits_into_an_issue(newest: ModuleType) -> None:
    bad = newest.Version("@everyone | `x` <b>", "1", "[a](b)" * 50)
    failures = [newest.Failure(f"step {number}", "y" * 50_000) for number in range(40)]

    text = newest.describe(newest.Found([bad], failures), "success", LINK)

    assert "<b>" not in text
    assert "[a](b)" not in text
    assert len(text) < 65_536


ISSUES = [{"number": 3, "title": "Another"}, {"number": 5, "title": "Newest versions of SDKs and tools"}]


@pytest.mark.parametrize(
    ("listed", "text", "done", "command"),
    [
        ([], "text", "opened", ("gh", "issue", "create")),
        (ISSUES, "text", "updated 5", ("gh", "issue", "edit", "5")),
        (ISSUES, None, "closed 1", ("gh", "issue", "close", "5")),
        (ISSUES[:1], None, "closed 0", ("gh", "issue", "list")),
    ],
    ids=["open", "update", "close", "nothing"],
)
def test_one_issue_is_opened_updated_and_closed(
    newest: ModuleType, listed: list[dict[str, Any]], text: str | None, done: str, command: tuple[str, ...]
) -> None:
    machine = Machine({"issue list": (0, json.dumps(listed))})

    assert newest.publish(text, machine) == done

    assert machine.commands[-1][: len(command)] == command
    assert machine.texts == ([] if text is None else [text])


def test_a_refusal_of_github_fails_the_job(newest: ModuleType) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        newest.publish("text", Machine({"issue create": (1, "forbidden"), "issue list": (0, "[]")}))


NUMBER = '{"versions": [], "failures": [{"name": 1, "output": "x"}]}'


@pytest.mark.parametrize(
    "written", [None, "no JSON", '{"versions": 1}', '{"versions": [{"a": 1}], "failures": []}']
)
def test_a_run_without_a_result_is_reported_as_failed(
    newest: ModuleType, tmp_path: Path, written: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    if written is not None:
        file.write_text(written, encoding="utf-8")
    machine = Machine({"issue list": (0, "[]")})

    assert newest.main(["report", str(file), "--host", "success"], machine, fetch) == 0

    assert "## Failed: `the run itself`" in machine.texts[0]
    assert capsys.readouterr().out == "opened\n"


def test_what_was_tried_is_reported(
    newest: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine({"issue list": (0, "[]"), "not slow": (1, "2 failed")})
    file = str(tmp_path / "found.json")

    assert newest.main(["try", file], machine, fetch) == 0
    assert newest.main(["report", file, "--host", "success"], machine, fetch) == 0

    assert "2 failed" in machine.texts[0]
    assert capsys.readouterr().out.endswith("opened\n")
