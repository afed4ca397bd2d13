"""The directive `pytest-plugin`: the fixtures, markers and options of a pytest plugin, as pytest gets them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from _pytest.config.argparsing import Parser
from _pytest.fixtures import FixtureFunctionDefinition
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

_log = logging.getLogger(__name__)


class _Markers:
    """Takes the place of pytest's configuration, and keeps the markers that a plugin declares."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def addinivalue_line(self, name: str, line: str) -> None:
        """Keep the line of a marker."""
        assert name == "markers", name
        self.lines.append(line)


def entry(directive: str, *text: str) -> Iterator[str]:
    """Yield the lines of a directive and the text below it."""
    yield from (f".. {directive}", "", *(f"   {line}" for line in text), "")


def fixtures(plugin: ModuleType) -> Iterator[str]:
    """Each fixture with its type, its scope and its docstring."""
    for name, value in vars(plugin).items():
        if not isinstance(value, FixtureFunctionDefinition):
            continue
        function = value._get_wrapped_function()
        if not function.__doc__:
            _log.warning("The fixture %s.%s has no docstring: write one", plugin.__name__, name)
        yielded = function.__annotations__["return"].removeprefix("Iterator[").removesuffix("]")
        scope = f"Scope: {value._fixture_function_marker.scope}."
        docstring = inspect.cleandoc(function.__doc__ or "").splitlines()
        yield from entry(f"py:data:: {name}\n   :type: {yielded}", scope, "", *docstring)


def markers(plugin: ModuleType) -> Iterator[str]:
    """Each marker with its text."""
    declared = _Markers()
    plugin.pytest_configure(declared)
    for line in declared.lines:
        signature, _, text = line.partition(": ")
        yield from entry(f"py:decorator:: pytest.mark.{signature}", text)


def options(plugin: ModuleType) -> Iterator[str]:
    """Each option with its help."""
    parser = Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    for option in (option for group in parser._groups for option in group.options):
        values = option.attrs()
        yield from entry(f"option:: {' '.join(option.names())} {values['metavar']}", values["help"])


class PytestPlugin(SphinxDirective):
    """Describes the plugin of the module that is its argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the description."""
        plugin = importlib.import_module(self.arguments[0])
        sections = [
            *(f".. py:module:: {plugin.__name__}", "", *inspect.cleandoc(plugin.__doc__ or "").splitlines(), ""),
            *(".. rubric:: Fixtures", "", *fixtures(plugin)),
            *(".. rubric:: Markers", "", *markers(plugin)),
            *(".. rubric:: Options", "", *options(plugin)),
        ]
        return list(self.parse_text_to_nodes("\n".join(sections)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("pytest-plugin", PytestPlugin)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
