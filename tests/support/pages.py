"""The pages of the documentation, their code blocks, and where each block is run.

A comment before a shell block says how it is run. It is not visible on the rendered page:

    <!-- run: in the background -->                  on its own, until the last block of the page has ended
    <!-- run: starts the stack -->                   first of all blocks; one block of all pages
    <!-- run with: the stack -->                     on the stack that this block has started
    <!-- run with: the stack, in the background -->  both
    <!-- run by: PATH::test, .ci/run -->             by that test, script or workflow
    <!-- run by: PATH, in the background -->         by that test, until it has ended
    <!-- not run: needs an Azure subscription -->    nowhere, for that reason

A shell block without a comment is run on its own. `tests/integration/test_documentation_commands.py` runs them.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("[!.]*/README.md"),
        *ROOT.glob("local/*/README.md"),
        *ROOT.glob("packages/*/README.md"),
        *ROOT.glob("outbox_relay/*/README.md"),
        *ROOT.glob("verification/*/README.md"),
        *ROOT.glob("tests/*/README.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("packages/emulators/docs/**/*.md"),
    }
)

PRODUCT = ("relay", "packages/operator/src/outbox_relay/operator")
"""The folders of the relay's and of its operators' code."""

SHELL = "sh"
RUN, RUN_WITH, RUN_BY, NOT_RUN = "run", "run with", "run by", "not run"
THE_STACK, STARTS_STACK, BACKGROUND = "the stack", "starts the stack", "in the background"

_BLOCK = re.compile(
    r"(?:^ *<!-- *(?P<comment>[^\n]*?) *-->\n)?"
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^ *(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(rf"({RUN}|{RUN_WITH}|{RUN_BY}|{NOT_RUN}): (\S.*)")
_VALUES = {RUN: ([BACKGROUND], [STARTS_STACK]), RUN_WITH: ([THE_STACK], [THE_STACK, BACKGROUND])}


class WrongComment(ValueError):
    """A comment before a shell block says nothing that the tests understand."""


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page.

    Attributes:
        page: The page's path below the root of the repository.
        line: The number of its first line, from 1.
        language: What follows the fence; empty for none.
        text: Its lines, without the indentation of the block.
        comment: The comment in the line before it, without its marks; empty for none.
    """

    page: str
    line: int
    language: str
    text: str
    comment: str

    @property
    def place(self) -> str:
        """Its place, as `docs/sql.md:38`."""
        return f"{self.page}:{self.line}"

    @property
    def rule(self) -> tuple[str, list[str]]:
        """How it is run: one of RUN, RUN_WITH, RUN_BY and NOT_RUN, and what follows the colon, split at commas.

        Raises:
            WrongComment: The comment is none of those above.
        """
        if not self.comment:
            return RUN, []
        if (match := _COMMENT.fullmatch(self.comment)) is None:
            raise WrongComment(f"{self.place}: {self.comment!r} does not say how this block is run")
        verb, rest = match[1], match[2]
        values = [rest] if verb == NOT_RUN else [each.strip() for each in rest.split(",")]
        if verb in _VALUES and values not in _VALUES[verb]:
            raise WrongComment(f"{self.place}: no block is {verb!r} {rest!r}")
        return verb, values


def blocks_of(text: str, page: str) -> list[Block]:
    """The code blocks of a page's text, in their order."""
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start("text")) + 1,
            language=match["language"].strip(),
            text=textwrap.dedent(match["text"]),
            comment=match["comment"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in their order."""
    return blocks_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


def section(page: Path, heading: str, language: str) -> list[str]:
    """The texts of the blocks of a language under a heading, without its subsections."""
    text = page.read_text(encoding="utf-8")
    [found] = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return [block.text for block in blocks_of(found, str(page)) if block.language == language]
