"""Links and pictures that GitHub shows from the repository, and the site from elsewhere."""

from __future__ import annotations

import re
import shutil
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)


def show_pictures(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make two images of a picture with a variant for dark pages: the theme hides one."""
    source[0] = _PICTURE.sub(
        r'<img class="only-light" alt="\g<alt>" src="\g<light>">'
        "\n\n"
        r'<img class="only-dark" alt="\g<alt>" src="\g<dark>">',
        source[0],
    )


def address(app: Sphinx, docname: str, target: str) -> str | None:
    """Return the address in the repository of a file that a page links to.

    It is None if the repository's is not known.
    """
    if not app.config.repository_url:
        return None
    path, _ = app.env.relfn2path(target, docname)
    return f"{app.config.repository_url}/blob/HEAD/{path}"


def link_to_repository(app: Sphinx, document: nodes.document) -> None:
    """Let links to files that are no pages of the site lead to the repository, if its address is known."""
    docname = app.env.docname
    for node in list(document.findall(addnodes.download_reference)):
        if found := address(app, docname, node["reftarget"]):
            node.replace_self(nodes.reference("", "", *node.children, internal=False, refuri=found))


def write_front_page(app: Sphinx, exception: Exception | None) -> None:
    """Give the README's page the name that servers look for."""
    front = app.outdir / f"{app.config.root_doc}.html"
    if front.exists():
        shutil.copyfile(front, app.outdir / "index.html")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("repository_url", "", "env")
    app.connect("source-read", show_pictures)
    app.connect("doctree-read", link_to_repository, priority=100)
    app.connect("build-finished", write_front_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
