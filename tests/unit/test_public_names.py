"""The reference has every public name, each with a docstring and an example. `make docs` checks more."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from docs.site.public_names import MODULES, absent, full_names, problems, public_names
from tests.support.examples import names_used, programs
from tests.support.pages import PAGES as MARKDOWN
from tests.support.pages import ROOT
from tests.support.signatures import describe

LISTS_OPTIONS = ("outbox_relay.inbox.Options",)
"""Its fields are keyword arguments of `inbox.Receiver`: programs pass them, and make no object of it."""
PAGES = sorted((ROOT / "docs/site/reference").glob("*.rst"))


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    described = re.findall(r"^\.\. auto(?:class|data|exception|function):: ([\w.]+)", text, re.MULTILINE)
    pages = [str(page.relative_to(ROOT).with_suffix("")) for page in PAGES]

    assert [absent(name, pages) for name in full_names(MODULES) if name not in described] == []
    assert sorted(described) == sorted(full_names(MODULES))


def test_every_public_name_says_what_it_is() -> None:
    assert list(problems(MODULES)) == []


@pytest.mark.parametrize("module_name", ["outbox_relay.outbox", "outbox_relay.inbox", "outbox_relay.changefeed"])
def test_every_public_function_and_class_has_an_example(module_name: str) -> None:
    """Tests run the programs of the pages and the samples, or strict type checkers read them (`tests/release`).

    A program with `prune` is one for `prune_async`, and one with `Feed` for `AsyncFeed`. Constants and exceptions
    need none, nor does a class in the signature of another name, which takes, returns or inherits it.
    """
    module = importlib.import_module(module_name)
    texts = [text for page in MARKDOWN for text in programs(page).values()]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "samples").rglob("*.py")]
    used = {name for text in texts for name in names_used(text)}
    signatures = dict(zip(sorted(public_names(module)), describe(module).split("\n\n"), strict=True))

    def needs_a_program(name: str) -> bool:
        value = getattr(module, name)
        if not inspect.isclass(value):
            return inspect.isfunction(value)
        others = "\n".join(text for other, text in signatures.items() if other != name)
        return not issubclass(value, Exception) and re.search(rf"\b{name}\b", others) is None

    assert [
        name
        for name in filter(needs_a_program, signatures)
        if f"{module_name}.{name.removeprefix('Async').removesuffix('_async')}" not in {*used, *LISTS_OPTIONS}
    ] == [], "use these names in a program of the page that owns their topic"
