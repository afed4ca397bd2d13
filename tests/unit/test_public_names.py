"""The reference has every public name, each with a docstring. `make docs` checks more."""

from __future__ import annotations

import re

from docs.site.public_names import MODULES, absent, full_names, problems
from tests.support.pages import ROOT

PAGES = sorted((ROOT / "docs/site/reference").glob("*.rst"))


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    described = re.findall(r"^\.\. auto(?:class|data|exception|function):: ([\w.]+)", text, re.MULTILINE)
    pages = [str(page.relative_to(ROOT).with_suffix("")) for page in PAGES]

    assert [absent(name, pages) for name in full_names(MODULES) if name not in described] == []
    assert sorted(described) == sorted(full_names(MODULES))


def test_every_public_name_says_what_it_is() -> None:
    assert list(problems(MODULES)) == []
