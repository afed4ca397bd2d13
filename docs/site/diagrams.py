"""Mermaid diagrams as pictures: GitHub draws them, and the site shows what `make docs DOCS=--draw` has drawn.

The pictures are in the repository, so that neither a build nor a reader needs Mermaid.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

_log = logging.getLogger(__name__)

FOLDER = "docs/site/diagrams"
SCHEMES = ("light", "dark")
_TITLE = re.compile(r"^ *accTitle: *(.+)$", re.MULTILINE)


def picture(text: str, scheme: str) -> str:
    """Return the path of a diagram's picture. Another text has another picture."""
    return f"{FOLDER}/{hashlib.sha256(text.strip().encode()).hexdigest()[:12]}-{scheme}.svg"


def image(text: str, scheme: str) -> nodes.image:
    """Return the picture for a colour scheme; the theme hides the one for the other."""
    title = _TITLE.search(text)
    assert title
    return nodes.image(uri=f"/{picture(text, scheme)}", alt=title[1], classes=[f"only-{scheme}"])


def problem(text: str, source: Path) -> str | None:
    """Why a diagram cannot be shown; None if it can."""
    if not _TITLE.search(text):
        return "This diagram has no `accTitle:`, which says what it shows to those who cannot see it: add one"
    if not all((source / picture(text, scheme)).exists() for scheme in SCHEMES):
        return f"This diagram is new or changed: draw it with `make docs DOCS=--draw`, and commit {FOLDER}"
    return None


def show_diagrams(app: Sphinx, document: nodes.document) -> None:
    """Put pictures in the place of the texts of diagrams."""
    for block in list(document.findall(nodes.literal_block)):
        if block.get("language") != "mermaid":
            continue
        if reason := problem(block.astext(), Path(app.srcdir)):
            _log.warning("%s", reason, location=block)
            block["language"] = "text"
        else:
            pictures = [image(block.astext(), scheme) for scheme in SCHEMES]
            block.replace_self(nodes.container("", *pictures, classes=["diagram"]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", show_diagrams, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
