"""The imports between the folders: some import nothing at all, and none in a circle."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.pages import ROOT

# Each package of the project, by the folder that holds it.
PACKAGES = {
    **{
        f"outbox_relay/{name}": ROOT / f"packages/{name}/src"
        for name in ("command_line", "outbox", "inbox", "emulators", "operator")
    },
    **dict.fromkeys(("relay", "outbox_relay/changefeed", "local", "samples", "tests", "verification"), ROOT),
}
NOTHING: frozenset[str] = frozenset()
_COMMAND = "relay/__main__.py"
"""It starts the operator's package, which imports the relay."""
ALLOWED = {
    "relay": frozenset({"outbox_relay.changefeed"}),
    "outbox_relay.operator": frozenset({"relay", "outbox_relay.changefeed", "outbox_relay.command_line"}),
    **{
        f"outbox_relay.{name}": frozenset({"outbox_relay.command_line"})
        for name in ("changefeed", "inbox", "emulators")
    },
    **{f"outbox_relay.{name}": NOTHING for name in ("command_line", "outbox")},
    "verification.journal": NOTHING,
}


@cache
def graph() -> dict[str, set[str]]:
    """Return each file's imports from the other files of these packages, in functions and for type checkers
    too.
    """
    folders = [str(folder / package) for package, folder in PACKAGES.items()]
    command = [sys.executable, "-m", "ruff", "analyze", "graph", "--quiet", *folders]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return {file: set(imported) - {file} for file, imported in found.items()}


def test_no_module_imports_itself_by_way_of_others() -> None:
    cycle: list[str] = []
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        # Each of the names is imported by the one after it.
        cycle = error.args[1]

    assert cycle == []
    assert graph()["local/sending/outboxes.py"] >= {"local/sending/cosmos.py", "local/sending/sql.py"}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    others = {
        package_of(each)
        for file, imported in graph().items()
        if package_of(file) == package and file != _COMMAND
        for each in imported
    }

    assert others - {package} == ALLOWED[package]


def package_of(file: str) -> str:
    """The package of a file: its first folder, below `src` if there is one, or the first two."""
    first, *others = file.rpartition("src/")[2].split("/")
    return f"{first}.{others[0]}" if first in ("outbox_relay", "verification") else first
