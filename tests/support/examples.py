"""The Python programs that the pages show, and the public names that they use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.pages import blocks

_FILE = re.compile(r"# (\S+\.py)\n")
_IMPORT = re.compile(r"(?:from|import) ")


def programs(page: Path) -> dict[str, str]:
    """Return the programs of a page, by the names of their files.

    A block that begins with a comment with a file name, or with an import, is a program. Another one continues the
    program before it; if there is none, it is a fragment and no program.
    """
    found: dict[str, str] = {}
    for block in blocks(page):
        if block.language != "python":
            continue
        if named := _FILE.match(block.text):
            found[named[1]] = block.text
        elif _IMPORT.match(block.text):
            found[f"line_{block.line}.py"] = block.text
        elif found:
            found[[*found][-1]] += block.text
    return found


def names_used(program: str) -> set[str]:
    """Return the names that a program uses of the modules that it imports, such as `inbox.Receiver`."""
    nodes = [*ast.walk(ast.parse(program))]
    imported: dict[str, str] = {}
    for each in nodes:
        if isinstance(each, ast.ImportFrom):
            imported |= {other.asname or other.name: f"{each.module}.{other.name}" for other in each.names}
        elif isinstance(each, ast.Import):
            imported |= {other.asname or other.name: other.name for other in each.names}
    used = {ast.unparse(each) for each in nodes if isinstance(each, ast.Name | ast.Attribute)}
    parts = (each.partition(".") for each in used)
    return {f"{imported[first]}{dot}{rest}" for first, dot, rest in parts if first in imported}
