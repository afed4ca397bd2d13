"""The reference is complete: every public name is on its pages, with a docstring."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from docs.site.public_names import absent, full_names, problems

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


def ignore_other_packages(app: Sphinx, config: Config) -> None:
    """Only names of the packages of the reference can be in it."""
    packages = {name.partition(".")[0] for name in config.reference_modules}
    config.nitpick_ignore_regex.append(("py:.*", rf"(?!({'|'.join(sorted(packages))})\b).*"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("reference_modules", [], "env")
    app.add_config_value("reference_pages", [], "env")
    app.add_config_value("command_pages", [], "env")
    app.connect("config-inited", ignore_other_packages)
    app.connect("env-check-consistency", check_reference)
    app.connect("doctree-read", check_docstrings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
