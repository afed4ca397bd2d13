"""The metadata of the distributions that are published."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from tests.support.pages import PAGES, ROOT

FOLDERS = sorted(
    file.parent for file in [*ROOT.glob("outbox_relay/*/pyproject.toml"), *ROOT.glob("packages/*/pyproject.toml")]
)
VERSION = "Programming Language :: Python :: "
PRIVATE = {"azure-cosmos", "azure-servicebus", "azure-functions", "python-qpid-proton"}
"""Packages of which private parts are used."""


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


each_of_them = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))


def pythons_of_ci() -> set[str]:
    """Return the versions of Python that the tests run on in CI."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    return {version for name in ("full", "unit") for version in jobs[name]["strategy"]["matrix"]["python"]}


def requirements(of: dict[str, Any]) -> list[Requirement]:
    """Return the requirements of a distribution and of its extras."""
    lists = [of["dependencies"], *of.get("optional-dependencies", {}).values()]
    return [Requirement(line) for lines in lists for line in lines]


def test_a_tag_releases_each_distribution_and_no_others() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    tags = re.findall(r'"(\w+)-v\*"', text)

    assert {folder.name for folder in FOLDERS} == {*tags} - {"app"}


@each_of_them
def test_the_metadata_names_authors_and_status(folder: Path) -> None:
    metadata = project(folder)
    licence = (folder / "LICENSE").read_text(encoding="utf-8")

    [author] = metadata["authors"]
    assert author.keys() == {"name"}
    assert f"{author['name']}\n" in licence
    assert [each for each in metadata["classifiers"] if each.startswith("Development Status :: ")] == [
        "Development Status :: 4 - Beta"
    ]


@each_of_them
def test_the_metadata_names_the_pythons_of_ci_and_no_others(folder: Path) -> None:
    metadata = project(folder)
    named = {each.removeprefix(VERSION) for each in metadata["classifiers"] if each.startswith(VERSION)}

    assert named == pythons_of_ci()
    assert metadata["requires-python"] == f">={min(named, key=lambda each: int(each.partition('.')[2]))}"


@each_of_them
def test_the_files_that_the_metadata_names_exist(folder: Path) -> None:
    metadata = project(folder)

    assert "Typing :: Typed" in metadata["classifiers"]
    assert len([*folder.rglob("py.typed")]) == 1
    assert {*metadata["license-files"], metadata["readme"]} == {"LICENSE", "README.md"}
    for name in ("LICENSE", "README.md"):
        assert (folder / name).is_file()


def test_packages_have_an_upper_bound_where_private_parts_are_used_and_nowhere_else() -> None:
    own = {project(folder)["name"] for folder in FOLDERS}
    found = {
        (folder.name, each.name, "<" in str(each.specifier))
        for folder in FOLDERS
        for each in requirements(project(folder))
        # The console has the version of the image.
        if each.name not in own and "==" not in str(each.specifier)
    }

    assert {name for _, name, is_bounded in found if is_bounded} <= PRIVATE
    assert [each for each in found if each[1] in PRIVATE and not each[2]] == []


def test_the_extras_that_the_pages_install_exist() -> None:
    named = {
        (folder, extra)
        for page in PAGES
        for folder, extras in re.findall(
            r"\./(?:packages/|outbox_relay/)?(\w+)\[([\w,]+)\]", page.read_text(encoding="utf-8")
        )
        for extra in extras.split(",")
    }
    existing = {
        (folder.name, extra) for folder in FOLDERS for extra in project(folder).get("optional-dependencies", {})
    }

    assert ("inbox", "blobs") in named
    assert named - existing == set()
