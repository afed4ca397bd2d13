"""The reading order: that of the table in README.md, and below a folder that of the links in its README.md."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator

HEADING = "Documentation"
README = "README"
# PyPI shows them. The pages of the libraries say the same, and more.
NOT_ON_THE_SITE = tuple(f"packages/{name}/README.md" for name in ("command_line", "outbox", "inbox", "operator"))

_SECTION = re.compile(rf"^## {HEADING}\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| *([^|]+?) *\| *(.+?) *\|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s:]+)\.md(?:#[^)\s]*)?\)")


class NoTable(ValueError):
    """README.md has no table of pages."""

    def __init__(self) -> None:
        super().__init__(f"README.md has no table of pages under '## {HEADING}': the site's order is its order.")


def pages_in(text: str) -> list[str]:
    """Return the Markdown pages that a text links to, without their suffix, each once."""
    return list(dict.fromkeys(_LINK.findall(text)))


def pages_below(readme: str) -> list[str]:
    """Return the pages that the README of a folder lists: those in the folder or below it."""
    return [page for page in pages_in(readme) if not page.startswith("..")]


def chapters(readme: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the captions and pages of the table in README.md, in its order.

    Raises:
        NoTable: There is none.
    """
    section = _SECTION.search(readme)
    rows = [(caption, pages_in(cell)) for caption, cell in _ROW.findall(section[1])] if section else []
    if not any(pages for _, pages in rows):
        raise NoTable
    seen: set[str] = set()
    for caption, pages in rows:
        new = [page for page in pages if page not in seen]
        seen.update(new)
        if new:
            yield caption[:1].upper() + caption[1:], new


def is_readme_of_folder(page: str) -> bool:
    """Return True if a page is the README of a folder other than the root."""
    return page != README and posixpath.basename(page) == README


def without_place(page: str, pages: Collection[str]) -> str:
    """Return the error for a page that the order does not have: it names the README that has to link to it."""
    folder = posixpath.dirname(page)
    place = f"the table in {README}.md, under '## {HEADING}'"
    while folder:
        readme = f"{folder}/{README}"
        if readme != page and readme in pages:
            place = f"{readme}.md"
            break
        folder = posixpath.dirname(folder)
    return f"{page}.md has no place in the reading order: link to it from {place}"
