"""The directive `pytest-plugin`: the fixtures, markers and options of a pytest plugin.

They are read from its source: building the site needs no pytest.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

_log = logging.getLogger(__name__)


def entry(directive: str, *text: str) -> Iterator[str]:
    """Yield the lines of a directive and the text below it."""
    yield from (f".. {directive}", "", *(f"   {line}" for line in text), "")


def read_plugin(name: str) -> ast.Module:
    """Return the syntax tree of a module.

    Raises:
        ModuleNotFoundError: There is no such module.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(name)
    return ast.parse(Path(found.origin).read_text(encoding="utf-8"))


def fixtures(plugin: ast.Module, name: str) -> Iterator[str]:
    """Yield each fixture with its type, its scope and its docstring."""
    for function in (node for node in plugin.body if isinstance(node, ast.FunctionDef)):
        scopes = [scope for each in function.decorator_list if (scope := _scope(each))]
        if not scopes:
            continue
        docstring = ast.get_docstring(function)
        if not docstring:
            _log.warning("The fixture %s.%s has no docstring: write one", name, function.name)
        assert function.returns is not None, function.name
        yielded = ast.unparse(function.returns).removeprefix("Iterator[").removesuffix("]")
        text = (f"Scope: {scopes[0]}.", "", *(docstring or "").splitlines())
        yield from entry(f"py:data:: {function.name}\n   :type: {yielded}", *text)


def _scope(decorator: ast.expr) -> str | None:
    """Return the scope that a decorator gives a fixture; None for another decorator."""
    call = decorator if isinstance(decorator, ast.Call) else None
    if ast.unparse(call.func if call else decorator) != "pytest.fixture":
        return None
    scopes = [ast.literal_eval(each.value) for each in (call.keywords if call else ()) if each.arg == "scope"]
    return str(scopes[0]) if scopes else "function"


def markers(plugin: ast.Module) -> Iterator[str]:
    """Yield each marker of the constant `_MARKERS` with its text."""
    for node in plugin.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MARKERS":
            for line in ast.literal_eval(node.value):
                signature, _, text = line.partition(": ")
                yield from entry(f"py:decorator:: pytest.mark.{signature}", text)


def options(plugin: ast.Module) -> Iterator[str]:
    """Yield each option with its help."""
    for call in (node for node in ast.walk(plugin) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "addoption":
            names = " ".join(map(ast.literal_eval, call.args))
            values = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
            yield from entry(f"option:: {names} {values['metavar']}", values["help"])


class PytestPlugin(SphinxDirective):
    """Describes the plugin of the module that is its argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the description."""
        name = self.arguments[0]
        plugin = read_plugin(name)
        sections = [
            *(f".. py:module:: {name}", "", *inspect.cleandoc(ast.get_docstring(plugin) or "").splitlines(), ""),
            *(".. rubric:: Fixtures", "", *fixtures(plugin, name)),
            *(".. rubric:: Markers", "", *markers(plugin)),
            *(".. rubric:: Options", "", *options(plugin)),
        ]
        return list(self.parse_text_to_nodes("\n".join(sections)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("pytest-plugin", PytestPlugin)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
