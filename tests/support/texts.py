"""The texts in code that are no docstrings, with a mark for what they insert."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.operators import ROOT

INSERTED = "\0"


def texts(*folders: str, naming: str = "") -> Iterator[tuple[str, str]]:
    """Each text of the modules below these folders in which this word occurs, and its place."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if naming in source:
            yield from _of_module(path, source)


def _of_module(path: Path, source: str) -> Iterator[tuple[str, str]]:
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    parts = {id(part) for each in nodes if isinstance(each, ast.JoinedStr) for part in each.values}
    for each in nodes:
        if id(each) in docstrings | parts:
            continue
        if isinstance(each, ast.JoinedStr):
            pieces = [str(part.value) if isinstance(part, ast.Constant) else INSERTED for part in each.values]
            yield f"{path.relative_to(ROOT)}:{each.lineno}", "".join(pieces)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield f"{path.relative_to(ROOT)}:{each.lineno}", each.value
