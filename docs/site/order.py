"""Gives Sphinx the reading order, as tables of contents that are added to the READMEs when they are read."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

from docs.site.chapters import README, NoTable, chapters, is_readme_of_folder, pages_below, without_place

_log = logging.getLogger(__name__)


def contents(pages: list[str], caption: str = "") -> str:
    """Return a table of contents that is in the sidebar, and not on the page itself."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "", "```{toctree}", *options, "", *pages, "```", ""])


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the order of the pages to a README."""
    if docname == README:
        try:
            listed = list(chapters(source[0]))
        except NoTable as error:
            raise ExtensionError(str(error)) from error
        for caption, pages in [
            *listed,
            ("Commands", app.config.command_pages),
            ("Python API", app.config.reference_pages),
        ]:
            source[0] += contents(pages, caption)
    elif is_readme_of_folder(docname):
        source[0] += contents(pages) if (pages := pages_below(source[0])) else ""


def check_order(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of pages that the order does not have. `make docs` ends with an error then."""
    for docname in sorted(env.found_docs - {README} - set(env.files_to_rebuild)):
        _log.warning("%s", without_place(docname, env.found_docs), location=docname)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("env-check-consistency", check_order)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
