"""The documentation: its links lead somewhere, the tests that it names exist, the README fits on one screen."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.site.chapters import (
    NOT_ON_THE_SITE,
    README,
    chapters,
    is_readme_of_folder,
    pages_below,
    without_place,
)
from tests.support.pages import BACKGROUND, PAGES, ROOT, RUN_BY, SHELL, Block, WrongComment, blocks, blocks_of

# Without the table of pages, which grows with their number.
README_WORDS = 650
# Of all pages, without code.
WORDS = 60_000

FIRST_SENTENCE = re.compile(r"# .+\n\n(After reading this page you (can|know)[ ,]|In five minutes[ ,])")
NO_FIRST_SENTENCE = {"CHANGELOG.md", "CODE_OF_CONDUCT.md", "README.md", "SECURITY.md", "SUPPORT.md"}
DECISION = re.compile(r"docs/decisions/0[^/]+\.md")

# What a block of commands begins with, whatever its fence says.
_COMMAND = re.compile(
    r"^(pip|pipx|python3?|\.venv/bin/\w+|make|curl|git|az|azd|func|docker|source|export) ", re.MULTILINE
)
_OTHER_SHELLS = {"bash", "shell", "zsh"}


def prose(text: str) -> str:
    """The text without its code blocks, which hold neither links nor headings."""
    return re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them: a repeated heading gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(text), re.MULTILINE):
        visible = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", visible).lower().replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def links(text: str) -> Iterator[tuple[str, str]]:
    """The relative links: path and anchor, either of which may be empty."""
    for target in re.findall(r"\]\(<?([^)\s>]+)>?\)", prose(text)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def broken_links(page: Path) -> list[str]:
    """The targets of `page`'s links that do not exist."""
    broken = []
    for path, anchor in links(page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(path)
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            broken.append(f"{path}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_the_documentation_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def off_the_site(page: Path, root: Path) -> list[str]:
    """Return the links of a page to pages that are not on the site, which `make docs` refuses."""
    targets = {path: (page.parent / path).resolve() for path, _ in links(page.read_text(encoding="utf-8")) if path}
    return [path for path, target in targets.items() if target in {root / name for name in NOT_ON_THE_SITE}]


def test_no_page_of_the_site_links_to_one_that_is_not_on_it(tmp_path: Path) -> None:
    on_the_site = [page for page in PAGES if str(page.relative_to(ROOT)) not in NOT_ON_THE_SITE]

    assert [(page, *found) for page in on_the_site if (found := off_the_site(page, ROOT))] == []
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text(
        "# Page\n[a](other.md) [b](../packages/outbox/README.md#c) `packages/outbox/README.md`\n", encoding="utf-8"
    )
    assert off_the_site(page, tmp_path) == ["../packages/outbox/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_the_documentation_names_exists(page: Path) -> None:
    named = set(re.findall(r"\btest_\w+\.py\b", page.read_text(encoding="utf-8")))

    assert named - existing_tests() == set()


@cache
def existing_tests() -> frozenset[str]:
    return frozenset(path.name for folder in ("tests", "packages") for path in (ROOT / folder).rglob("test_*.py"))


def missing(place: str) -> bool:
    """Return True if a place that runs a block, `PATH` or `PATH::test`, does not exist."""
    path, _, test = place.partition("::")
    file = ROOT / path
    return not file.is_file() or (test != "" and f"def {test}(" not in file.read_text(encoding="utf-8"))


def wrong(block: Block) -> str | None:
    """The error in a block's comment on how it is run; None if there is none."""
    if block.language in _OTHER_SHELLS:
        return f"{block.place}: write {SHELL} for {block.language}"
    if block.language != SHELL:
        unnamed = block.language == "" and _COMMAND.match(block.text)
        return f"{block.place}: has commands, and no language" if unnamed else None
    try:
        verb, values = block.rule
    except WrongComment as error:
        return str(error)
    absent = [place for place in values if verb == RUN_BY and place != BACKGROUND and missing(place)]
    return f"{block.place}: {absent} does not exist" if absent else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_commands_says_where_it_is_run(page: Path) -> None:
    assert [wrong(block) for block in blocks(page) if wrong(block)] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_shell_can_parse_every_block_also_those_that_are_not_run(page: Path) -> None:
    for block in blocks(page):
        if block.language == SHELL:
            # A locale that is not installed is a warning.
            environment = {**os.environ, "LC_ALL": "C.UTF-8"}
            parsed = subprocess.run(
                ["bash", "-n"], input=block.text, env=environment, capture_output=True, text=True, check=False
            )
            assert (parsed.returncode, parsed.stderr) == (0, ""), block.place


@pytest.mark.parametrize(
    ("comment", "language", "says"),
    [
        ("<!-- not run -->\n", "sh", "'not run' does not say how this block is run"),
        ("<!-- run with: a moon -->\n", "sh", "no block is 'run with' 'a moon'"),
        (
            "<!-- run by: README.md::test_nothing, nowhere.py -->\n",
            "sh",
            "['README.md::test_nothing', 'nowhere.py']",
        ),
        ("", "bash", "write sh"),
        ("", "", "no language"),
    ],
)
def test_a_block_that_would_escape_is_found(comment: str, language: str, says: str) -> None:
    [block] = blocks_of(f"- a list\n\n{comment}  ```{language}\n  make up\n  ```\n", "page.md")

    assert block.text == "make up\n"
    assert says in str(wrong(block))


def test_the_readme_fits_on_one_screen() -> None:
    text = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    before, heading, pages = text.partition("## Documentation")
    text = before + re.sub(r"^\|.*", "", pages, flags=re.MULTILINE)

    assert heading
    assert len(text.split()) <= README_WORDS


def test_all_pages_together_can_be_read() -> None:
    words = [word for page in PAGES for word in prose(page.read_text(encoding="utf-8")).split()]

    # The bars of tables are none.
    assert sum(re.search(r"\w", word) is not None for word in words) <= WORDS


def without_first_sentence(pages: dict[str, str]) -> list[str]:
    """The paths of the pages that do not begin with what the reader can do after them."""
    return [
        path
        for path, text in pages.items()
        if not FIRST_SENTENCE.match(text) and path not in NO_FIRST_SENTENCE and not DECISION.fullmatch(path)
    ]


def test_every_page_begins_with_what_the_reader_can_do_after_it() -> None:
    pages = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}

    assert without_first_sentence(pages) == []
    assert without_first_sentence({"docs/new.md": "# New\n\n## First\n\nAfter reading this page you can\n"})


def without_place_in_the_order(pages: dict[str, str]) -> list[str]:
    """The errors for pages, by their paths without suffix, that no README lists."""
    listed = {README, *(page for _, chapter in chapters(pages[README]) for page in chapter)}
    for page, text in pages.items():
        if is_readme_of_folder(page):
            listed.update(f"{posixpath.dirname(page)}/{below}" for below in pages_below(text))
    return [without_place(page, pages) for page in pages if page not in listed]


def test_every_page_has_its_place_in_the_reading_order() -> None:
    """`make docs` checks this too; without it, a new page would only be missed there."""
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    pages = {path.removesuffix(".md"): text for path, text in texts.items() if path not in NOT_ON_THE_SITE}

    assert without_place_in_the_order(pages) == []
    assert without_place_in_the_order({**pages, "docs/new": "", "docs/decisions/0099-new": ""}) == [
        "docs/new.md has no place in the reading order: link to it from the table in README.md, "
        "under '## Documentation'",
        "docs/decisions/0099-new.md has no place in the reading order: link to it from docs/decisions/README.md",
    ]


def test_the_list_of_decisions_says_what_they_say() -> None:
    rows = {}
    for file in sorted((ROOT / "docs/decisions").glob("0*.md")):
        text = file.read_text(encoding="utf-8")
        [(number, title)] = re.findall(r"\A# (\d+)\. (.+)", text)
        later = re.search(r"^\*Superseded( in part)? by \[decision (\d+)\]", text, re.MULTILINE)
        state = f"{'in part ' if later[1] else ''}superseded by {later[2]} " if later else ""
        rows[file.name] = f"| {number} | [{title}]({file.name}) | {state}|"
    listed = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| \d.*", listed, re.MULTILINE) == list(rows.values())


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        "# Other page: `code`\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n", encoding="utf-8"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n"
        "[a](other.md) [b](other.md#other-page-code) [c](#page) [d](https://example.org/#x)\n"
        "[e](other.md#twice-1)\n"
        "[f](missing.md) [g](other.md#no-heading) [h](#other) [i](other.md#twice-2)\n"
        "```\n[code](gone.md)\n```\n",
        encoding="utf-8",
    )

    assert broken_links(page) == ["missing.md", "other.md#no-heading", "#other", "other.md#twice-2"]
