"""Pages of the emulators' conformance: every row names tests that exist, and the versions are those installed."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.pages import ROOT
from tests.unit.emulators import test_compatibility as compatibility

FOLDER = ROOT / "packages" / "emulators" / "docs" / "conformance"
LANGUAGES = ROOT / "packages" / "emulators" / "tests" / "languages"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md") if path.name != "README.md"}
SEVERAL = compatibility.rows(
    (FOLDER / "README.md").read_text(encoding="utf-8").partition("## Several clients")[2]
)[1:]
"""The rows of several clients, by the names of these."""
ROWS = [
    *((client, row) for client, page in PAGES.items() for row in compatibility.rows(page) if row[-1] != "held by"),
    *(("several", row) for row in SEVERAL),
]
CHECKS = {"JavaScript": "[cs]*/*.mjs", "Java": "java/src/*/*.java", "Go": "go/*/*.go"}
"""The files that have the checks of a client; the others have none."""


def exists(test: str) -> bool:
    """Return True if the test is in the file that it names: below tests/, or of the emulators."""
    if not test.startswith("tests/"):
        return compatibility.exists(test)
    file, name = test.split("::")
    return (ROOT / file).is_file() and f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(("client", "row"), ROWS, ids=lambda part: part if isinstance(part, str) else part[0])
def test_a_row_says_what_is_expected_and_names_tests_that_exist(client: str, row: list[str]) -> None:
    assert len(row) == 3
    assert all(row)
    assert compatibility.named(row), "no test holds it"
    assert [test for test in compatibility.named(row) if not exists(test)] == []


@pytest.mark.parametrize("row", SEVERAL, ids=lambda row: row[1])
def test_each_client_of_a_row_has_its_checks(row: list[str]) -> None:
    clients = row[0].split(", ")
    checks = {test.partition(": ")[2] for test in compatibility.named(row) if "::" not in test}

    assert len(clients) > 1
    assert set(clients) <= {*CHECKS, "Python", ".NET"}
    assert checks
    for client in CHECKS.keys() & clients:
        sources = "".join(path.read_text(encoding="utf-8") for path in LANGUAGES.glob(CHECKS[client]))
        assert {check for check in checks if f'check("{check}", ' not in sources} == set()


def test_every_client_has_a_page_that_is_listed() -> None:
    listed = re.findall(r"\((\w+)\.md\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(PAGES) == ["dotnet", "go", "java", "javascript", "python"]
    assert {client for client, _ in ROWS} == {*PAGES, "several"}


def test_pages_have_the_versions_that_the_tests_run() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    package = json.loads((LANGUAGES / "package.json").read_text(encoding="utf-8"))
    for name in ("azure-cosmos", "azure-servicebus"):
        (version,) = re.findall(rf"^{name}==(\S+)", lock, re.MULTILINE)
        assert f"{name} {version}" in PAGES["python"]
    for name in ("@azure/cosmos", "@azure/service-bus"):
        assert f"{name} {package['dependencies'][name]}" in PAGES["javascript"]
    pom = (LANGUAGES / "java" / "pom.xml").read_text(encoding="utf-8")
    for name in ("azure-cosmos", "azure-messaging-servicebus"):
        (version,) = re.findall(rf"<artifactId>{name}</artifactId>\s*<version>(.+?)</version>", pom)
        assert f"{name} {version}" in PAGES["java"]
    for folder, name in (("cosmos", "azcosmos"), ("servicebus", "azservicebus")):
        module = (LANGUAGES / "go" / folder / "go.mod").read_text(encoding="utf-8")
        (version,) = re.findall(rf"/{name} v(\S+)", module)
        assert f"{name} {version}" in PAGES["go"]


@pytest.mark.parametrize("test", ["tests/nowhere.py::test_x", "tests/integration/test_edges.py::test_nothing"])
def test_a_test_of_the_relay_that_does_not_exist_is_found(test: str) -> None:
    assert not exists(test)
