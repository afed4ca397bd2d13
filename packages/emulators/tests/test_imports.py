"""How the modules of the package import one another: by absolute names, and never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import outbox_relay.emulators

PACKAGE = Path(outbox_relay.emulators.__file__).parent


@cache
def _modules() -> dict[str, ast.Module]:
    """Every module of the package by its name, parsed."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parents[1]).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def _imports(module: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """All import statements of a module, those for type checkers and those in functions included."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _imported(statement: ast.Import | ast.ImportFrom, modules: dict[str, ast.Module]) -> Iterator[str]:
    """The modules of the package that a statement imports: `from package import name` may import a module."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            candidates = [alias.name]
        else:
            candidates = [f"{statement.module}.{alias.name}", str(statement.module)]
        yield from [name for name in candidates if name in modules][:1]


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = _modules()
    graph = {
        name: {
            imported
            for statement in _imports(module)
            for imported in _imported(statement, modules)
            if imported != name
        }
        for name, module in modules.items()
    }

    cycle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1]

    # Each of the names is imported by the one after it.
    assert cycle == []
    assert graph["outbox_relay.emulators.cosmos.server"] >= {"outbox_relay.emulators.cosmos.account"}


def test_no_import_is_relative() -> None:
    relative = [
        f"{name}, line {statement.lineno}"
        for name, module in _modules().items()
        for statement in _imports(module)
        if isinstance(statement, ast.ImportFrom) and statement.level
    ]

    assert relative == []
