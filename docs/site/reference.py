"""The reference is complete: every public name is on its pages, with a docstring."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

_log = logging.getLogger(__name__)


def public_names(module: ModuleType) -> list[str]:
    """The names that a module offers: `__all__`, or else what it defines without an underscore."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def has_docstring(value: Any) -> bool:
    """Whether a class, function or property says what it is. What dataclasses write themselves says nothing."""
    text = inspect.getdoc(value)
    return bool(text) and not (inspect.isclass(value) and str(text).startswith(f"{value.__name__}("))


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines."""
    for name, value in vars(cls).items():
        if not name.startswith("_") and (
            inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        ):
            yield name, getattr(cls, name)


def fields_without_meaning(cls: type) -> Iterator[str]:
    """The public fields of a dataclass that neither its docstring nor that of a base names."""
    docstrings = " ".join(each.__doc__ or "" for each in cls.__mro__[:-1])
    for each in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if not each.name.startswith("_") and not re.search(rf"\b{each.name}\b", docstrings):
            yield each.name


def undocumented(name: str, value: Any) -> Iterator[str]:
    """The public names without a docstring: this one's, and those of its members."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return
    if not has_docstring(value):
        yield name
    if inspect.isclass(value):
        yield from (f"{name}.{each}" for each, member in members(value) if not has_docstring(member))


def check_reference(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names without a docstring or a place. `make docs` ends with an error then."""
    on_pages = env.domaindata["py"]["objects"]
    for module_name in app.config.reference_modules:
        module = importlib.import_module(module_name)
        for name in public_names(module):
            full, value = f"{module_name}.{name}", getattr(module, name)
            for each in undocumented(full, value):
                _log.warning("%s is public and has no docstring: write one", each)
            for field in fields_without_meaning(value) if inspect.isclass(value) else ():
                _log.warning("%s does not say what %s is: add it to the docstring's Attributes", full, field)
            if full not in on_pages:
                pages = ", ".join(f"{page}.rst" for page in app.config.reference_pages)
                _log.warning("%s is public and not in the reference: add it to one of %s", full, pages)


def check_docstrings(app: Sphinx, document: nodes.document) -> None:
    """Warn of docstrings that mean something else in reStructuredText than their author meant."""
    if app.env.docname not in app.config.reference_pages:
        return
    for quote in document.findall(nodes.block_quote):
        _log.warning("An example would be shown as prose: end the line before it with '::'", location=quote)
    for code in (node for node in document.findall(nodes.literal) if "`" in node.astext()):
        text = code.astext()
        _log.warning("%r is not one name: no letter may follow a closing backtick", text, location=code)


def public_paths(modules: list[str]) -> dict[str, str]:
    """The public name of each class and function, by the module that defines it."""
    found = {}
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in public_names(module):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                found[f"{value.__module__}.{value.__qualname__}"] = f"{module_name}.{name}"
    return found


def resolve_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.reference | None:
    """Link an annotation, which names the module that defines a class, to the public name."""
    if node.get("refdomain") != "py":
        return None
    public = public_paths(app.config.reference_modules).get(node["reftarget"])
    found = env.domaindata["py"]["objects"].get(public)
    if found is None:
        return None
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, [content])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("reference_modules", [], "env")
    app.add_config_value("reference_pages", [], "env")
    app.connect("env-check-consistency", check_reference)
    app.connect("doctree-read", check_docstrings)
    app.connect("missing-reference", resolve_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
