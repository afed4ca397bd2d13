"""Each lock has every package that the short lists or the distribution need, each at one version with hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.infra.project import ROOT

OPERATOR = "packages/operator/pyproject.toml"
COMMAND_LINE = "outbox-relay-command-line"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True, slots=True)
class Locked:
    """An entry of the lock: the requirement, and the SHA-256 of each of its files."""

    requirement: Requirement
    hashes: tuple[str, ...]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def of_the_app() -> list[Requirement]:
    """Return the requirements of the app."""
    lines = text("requirements.txt").splitlines()
    return [Requirement(line) for line in lines if line and line[0] != "#"]


def of_the_commands() -> list[Requirement]:
    """Return the requirements of the operators' commands and of the console, without the project's own."""
    project = tomllib.loads(text(OPERATOR))["project"]
    named = [Requirement(each) for each in project["dependencies"] + project["optional-dependencies"]["console"]]
    return [each for each in named if each.name != COMMAND_LINE]


def read_lock(content: str) -> list[Locked]:
    """The entries of a lock.

    Raises:
        ValueError: A line is neither a requirement nor a hash of one.
    """
    joined = re.sub(r"^ *#.*\n?", "", content, flags=re.MULTILINE).replace("\\\n", " ")
    entries = []
    for line in filter(str.strip, joined.splitlines()):
        first, *hashes = line.split(" --hash=sha256:")
        if not all(re.fullmatch(r"[0-9a-f]{64} *", each) for each in hashes):
            raise ValueError(line)
        entries.append(Locked(Requirement(first.strip()), tuple(each.strip() for each in hashes)))
    return entries


LOCK = read_lock(text("requirements.lock"))
OF_COMMANDS = read_lock(text("packages/operator/requirements.lock"))
OF_EMULATORS = read_lock(text("packages/emulators/requirements.lock"))


def environment(python: str, machine: str) -> dict[str, str]:
    """The environment of a marker on Linux."""
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    versions = {"python_version": python, "python_full_version": f"{python}.1"}
    implementation = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    here = {name: str(value) for name, value in default_environment().items()}
    return {**here, **linux, **versions, **implementation, "platform_machine": machine}


def holds(requirement: Requirement, where: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(where)


def versions(requirements: list[Requirement], where: dict[str, str]) -> dict[str, str]:
    """The version of each package that is wanted there, which must be a single one."""
    found: dict[str, str] = {}
    for each in requirements:
        if holds(each, where):
            [pin] = each.specifier
            assert pin.operator == "=="
            name = canonicalize_name(each.name)
            assert name not in found, name
            found[name] = pin.version
    return found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_the_versions_of_the_short_lists(python: str, machine: str) -> None:
    where = environment(python, machine)
    wanted, locked = versions(of_the_app(), where), versions([each.requirement for each in LOCK], where)

    assert len(wanted) >= 10
    # After a change of a short list: make lock.
    assert wanted.items() <= locked.items()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_commands_have_the_versions_of_the_app_and_their_own_packages(python: str, machine: str) -> None:
    where = environment(python, machine)
    app, commands = (versions([each.requirement for each in lock], where) for lock in (LOCK, OF_COMMANDS))

    assert app.items() <= commands.items()
    assert {"cyclopts", "rich", "jinja2"} <= commands.keys() - app.keys()
    for each in of_the_commands():
        if holds(each, where):
            assert each.specifier.contains(commands[canonicalize_name(each.name)]), each


@pytest.mark.parametrize(
    ("lock", "at_least"),
    [(LOCK, 50), (OF_COMMANDS, 60), (OF_EMULATORS, 20)],
    ids=["app", "commands", "emulators"],
)
def test_every_locked_package_has_hashes_and_none_comes_from_elsewhere(lock: list[Locked], at_least: int) -> None:
    assert len(lock) > at_least
    assert [each.requirement.name for each in lock if not each.hashes] == []
    assert [each.requirement.name for each in lock if each.requirement.url] == []


def needed(named: list[Requirement]) -> Iterator[str]:
    """These packages and those that they need, by the metadata of what is installed here."""
    where = {name: str(value) for name, value in default_environment().items()}
    waiting = [each for each in named if holds(each, where)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        each = waiting.pop()
        key = (canonicalize_name(each.name), frozenset(each.extras))
        if key in seen:
            continue
        seen.add(key)
        yield key[0]
        for line in metadata.requires(each.name) or ():
            inner = Requirement(line)
            if any(holds(inner, {**where, "extra": extra}) for extra in ("", *each.extras)):
                waiting.append(inner)


def test_the_locks_have_what_the_named_packages_need_themselves() -> None:
    app, commands = ({canonicalize_name(each.requirement.name) for each in lock} for lock in (LOCK, OF_COMMANDS))
    wanted = set(needed(of_the_app()))

    assert {"aiohttp", "msal", "opentelemetry-sdk", "psycopg-binary", "yarl"} <= wanted
    assert wanted <= app
    assert {*wanted, *needed(of_the_commands())} <= commands
    assert {*needed([Requirement(COMMAND_LINE)])} - {COMMAND_LINE} <= commands


def test_the_lock_of_the_emulators_has_what_their_extras_need_at_versions_that_they_allow() -> None:
    where = environment("3.13", "x86_64")
    locked = versions([each.requirement for each in OF_EMULATORS], where)
    project = tomllib.loads(text("packages/emulators/pyproject.toml"))["project"]
    named = [Requirement(each) for each in project["dependencies"]]
    named += [Requirement(each) for extra in project["optional-dependencies"].values() for each in extra]
    beside = {project["name"], COMMAND_LINE}
    others = [each for each in named if each.name not in beside]

    assert len(others) >= 10
    for each in others:
        assert each.specifier.contains(locked[canonicalize_name(each.name)]), each
    assert set(needed([Requirement(f"{project['name']}[all]")])) - beside <= set(locked)


@pytest.mark.parametrize(
    "line",
    ["azure-core @ https://example.org/x.whl --hash=sha256:00", "--index-url https://example.org/simple"],
)
def test_a_line_that_is_no_locked_package_is_found(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line.split()[0])):
        read_lock(line)


def test_the_locks_are_made_by_make() -> None:
    makefile = text("Makefile")
    [recipe] = re.findall(r"^lock:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)

    made = {}
    for line in recipe.splitlines():
        name = re.findall(r"--output-file (\S+)", line)[0]
        assert "make lock" in text(name).splitlines()[1]
        made[name] = set(re.findall(r"\S+\.(?:txt|toml|lock)", line)) - {name}
    assert made == {
        "requirements.lock": {"requirements.txt"},
        "packages/operator/requirements.lock": {"requirements.lock", "requirements.txt", OPERATOR},
        "packages/emulators/requirements.lock": {
            "packages/operator/requirements.lock",
            "packages/emulators/pyproject.toml",
        },
    }
    assert "--generate-hashes" in re.findall(r"^COMPILE = .*\n\t.*", makefile, re.MULTILINE)[0]
