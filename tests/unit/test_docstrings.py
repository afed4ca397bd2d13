"""Each docstring makes sense alone, as an editor shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.pages import ROOT

PLACES = (
    *("docs", "function_app.py", "infra", "local", "outbox_relay", "packages", "relay", "samples", "tests"),
    "verification",
)
# An editor does not show the other docstring that one refers to, and a clause alone is no sentence.
ANOTHER = re.compile(r"\b(likewise|as the two above)\b", re.IGNORECASE)
CLAUSE = re.compile(r"(What|Whether|As)\b")
# Only a module with one of these is parsed, which takes its time.
SUSPECT = re.compile(rf"(?i:{ANOTHER.pattern})|[\"']\s*{CLAUSE.pattern}")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, of its classes, functions and attributes, each with its line."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Constant(str(docstring))):
                yield node.lineno, docstring


def faults(text: str) -> Iterator[str]:
    if not SUSPECT.search(text):
        return
    for line, docstring in docstrings(text):
        if found := ANOTHER.search(docstring) or CLAUSE.match(docstring.lstrip()):
            yield f"{line}: {found[0]}"


@pytest.mark.parametrize("place", PLACES)
def test_docstrings_make_sense_alone(place: str) -> None:
    paths = sorted((ROOT / place).rglob("*.py")) or [ROOT / place]
    own = [each for each in paths if not {"node_modules", "build"} & set(each.parts)]

    assert [
        f"{path.relative_to(ROOT)}:{fault}" for path in own for fault in faults(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "docstring",
    [
        "What was sent.",
        "Whether it was sent.",
        "As `send`.",
        "Send it; likewise.",
        "Likewise, of a stream.",
        "Check it.\n\n    As the two above.",
    ],
)
@pytest.mark.parametrize("text", ['"""{}"""', 'def f() -> None:\n    """{}"""', 'SENT = 1\n"""{}"""'])
def test_a_docstring_that_needs_another_one_is_found(text: str, docstring: str) -> None:
    assert len(list(faults(text.format(docstring)))) == 1


@pytest.mark.parametrize("docstring", ["Return True if it was sent.", "Assemble it.", "Whatever was sent."])
def test_other_docstrings_are_let_pass(docstring: str) -> None:
    assert list(faults(f'"""{docstring}"""')) == []
