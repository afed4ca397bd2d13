"""The reading order of the site: that of the README's table, and below a folder that of its README.

Sphinx gets the order as tables of contents that are added to the READMEs when it reads them. A page that no README
links to is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging

_log = logging.getLogger(__name__)

HEADING = "Documentation"
_SECTION = re.compile(rf"^## {HEADING}\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| *([^|]+?) *\| *(.+?) *\|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s:]+)\.md(?:#[^)\s]*)?\)")


def pages_in(text: str) -> list[str]:
    """The Markdown pages that a text links to, without their suffix, each once."""
    return list(dict.fromkeys(_LINK.findall(text)))


def chapters(readme: str) -> Iterator[tuple[str, list[str]]]:
    """The captions and pages of the README's table, in its order.

    Raises:
        ExtensionError: There is no such table.
    """
    section = _SECTION.search(readme)
    rows = [(caption, pages_in(cell)) for caption, cell in _ROW.findall(section[1])] if section else []
    if not any(pages for _, pages in rows):
        raise ExtensionError(
            f"README.md has no table of pages under '## {HEADING}': the site's order is its order."
        )
    seen: set[str] = set()
    for caption, pages in rows:
        new = [page for page in pages if page not in seen]
        seen.update(new)
        if new:
            yield caption[:1].upper() + caption[1:], new


def contents(pages: list[str], caption: str = "") -> str:
    """A table of contents that is in the sidebar, and not on the page itself."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "", "```{toctree}", *options, "", *pages, "```", ""])


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the order of the pages to a README."""
    root = app.config.root_doc
    if docname == root:
        for caption, pages in [*chapters(source[0]), ("Reference", app.config.reference_pages)]:
            source[0] += contents(pages, caption)
    elif posixpath.basename(docname) == posixpath.basename(root):
        below = [page for page in pages_in(source[0]) if not page.startswith("..")]
        source[0] += contents(below) if below else ""


def place_of(docname: str, env: BuildEnvironment) -> str:
    """Where a page is to be listed: in the README of its folder, or in the table of the root's."""
    root = env.config.root_doc
    folder = posixpath.dirname(docname)
    while folder:
        readme = f"{folder}/{root}"
        if readme != docname and readme in env.found_docs:
            return f"{readme}.md"
        folder = posixpath.dirname(folder)
    return f"the table in {root}.md, under '## {HEADING}'"


def check_order(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of pages that the order does not have. `make docs` ends with an error then."""
    for docname in sorted(env.found_docs - {app.config.root_doc} - set(env.files_to_rebuild)):
        path = env.doc2path(docname, base=False)
        _log.warning(
            "%s has no place in the reading order: link to it from %s",
            path,
            place_of(docname, env),
            location=docname,
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("env-check-consistency", check_order)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
