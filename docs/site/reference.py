"""The reference is complete: every public name is on its pages, with a docstring."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

from docs.site.public_names import absent, full_names, problems, public_names

_log = logging.getLogger(__name__)


def check_reference(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names without a docstring or a place. `make docs` ends with an error then."""
    on_pages = env.domaindata["py"]["objects"]
    for problem in problems(app.config.reference_modules):
        _log.warning("%s", problem)
    for name in full_names(app.config.reference_modules):
        if name not in on_pages:
            _log.warning("%s", absent(name, app.config.reference_pages))


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
