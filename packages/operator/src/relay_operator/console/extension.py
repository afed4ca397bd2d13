"""Additions to a page of the console by another part of the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Extension:
    """Blocks in the sections of a page, and further routes.

    Attributes:
        name: Of the part: its templates are included as `name/file.html`.
        templates: The folder of its templates. Those with the name of one of `pages.SLOTS` are blocks of the page.
        routes: Its routes, below the address of the page, which templates have in `base`. A handler makes its HTML
            with `request.app[PAGES].fragment("name/file.html", …)`.
        static: A folder that is served as `/static/name/`; None for none. `style.css` and `script.js` in it are
            included in the page.
    """

    name: str
    templates: Path
    routes: Sequence[web.AbstractRouteDef] = ()
    static: Path | None = None
