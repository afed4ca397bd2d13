"""The documentation: its links lead somewhere, the tests that it names exist, the README fits on one screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("docs/**/*.md"),
        *(
            ROOT / path
            for path in (
                "README.md",
                "changefeed/README.md",
                "emulators/README.md",
                "outbox/README.md",
                "infra/README.md",
            )
        ),
    ]
)
README_WORDS = 700


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
    """What the links of `page` name and nobody finds."""
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_the_documentation_names_exists(page: Path) -> None:
    named = set(re.findall(r"\btest_\w+\.py\b", page.read_text(encoding="utf-8")))
    existing = {
        path.name for folder in ("tests", "emulators", "outbox") for path in (ROOT / folder).rglob("test_*.py")
    }

    assert named - existing == set()


def test_the_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS


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
