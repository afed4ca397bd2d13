"""What the folders import of one another, as CONTRIBUTING.md says: some nothing at all, and none in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.pages import ROOT

# One worker parses the packages, once.
pytestmark = pytest.mark.xdist_group("import graph")

# Each package of the project, by the folder that holds it.
PACKAGES = {
    "outbox": ROOT / "outbox/src",
    "inbox": ROOT / "inbox/src",
    "outbox_emulators": ROOT / "emulators/src",
    **dict.fromkeys(("relay", "changefeed", "local", "samples"), ROOT),
    **dict.fromkeys(("bench", "journal", "simulation", "spec", "tests"), ROOT),
}
NOTHING: frozenset[str] = frozenset()
ALLOWED = {
    "relay": frozenset({"changefeed"}),
    **dict.fromkeys(("changefeed", "outbox", "inbox", "outbox_emulators", "journal"), NOTHING),
}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of these packages by its name, parsed."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in (folder / package).rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def statements(of: ast.AST) -> Iterator[ast.AST]:
    """All statements within this one. Most nodes are expressions, in which nothing is imported."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for statement in getattr(of, part, ()):
            yield statement
            yield from statements(statement)


def imported(module: ast.Module) -> Iterator[str]:
    """The project's modules that a module imports anywhere, in functions and for type checkers too."""
    for statement in statements(module):
        if isinstance(statement, ast.Import):
            yield from [alias.name for alias in statement.names if alias.name in modules()]
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                candidates = (f"{statement.module}.{alias.name}", str(statement.module))
                yield from [name for name in candidates if name in modules()][:1]


@cache
def graph() -> dict[str, set[str]]:
    """What each module imports of the others."""
    return {name: set(imported(module)) - {name} for name, module in modules().items()}


def test_no_module_imports_itself_by_way_of_others() -> None:
    cycle: list[str] = []
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        # Each of the names is imported by the one after it.
        cycle = error.args[1]

    assert cycle == []
    assert graph()["local.sending.outboxes"] >= {"local.sending.cosmos", "local.sending.sql"}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    others = {
        name.partition(".")[0]
        for module, names in graph().items()
        if module.partition(".")[0] == package
        for name in names
    }

    assert others - {package} == ALLOWED[package]
