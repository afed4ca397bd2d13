"""The metrics of the relay and of `inbox`, and the relay's log fields, read from their source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from relay.telemetry import attempt
from relay.telemetry import instruments as telemetry


def instruments(file: str = telemetry.__file__) -> dict[str, str]:
    """The instruments of a source file by name, such as `relay.lag`, with their kind, such as `histogram`."""
    found = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            kind = re.fullmatch(r"create_(?:observable_|up_down_)?(counter|histogram|gauge)", node.func.attr)
            name = node.args[0] if node.args else None
            if kind and isinstance(name, ast.Constant):
                found[str(name.value)] = kind[1]
    return found


def attributes(document: str, library: str = "relay") -> dict[str, set[str]]:
    """The attributes of each instrument in a page, such as docs/telemetry.md."""
    rows = re.findall(rf"^\| `({library}\.[\w.]+)` \| [\w -]+ \| `[^`]+` \| ([^|]*)\|", document, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", listed)) for name, listed in rows}


def attribute_names(file: str = telemetry.__file__) -> set[str]:
    """The names of all attributes of metrics of a source file."""
    return _keys(file)


def log_fields() -> set[str]:
    """The names of all fields of log records."""
    return _keys(attempt.__file__)


def log_actions() -> set[str]:
    """The values of the field `action`."""
    return {
        str(node.args[0].value)
        for node in ast.walk(_tree(attempt.__file__))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "_fields"
        and isinstance(node.args[0], ast.Constant)
    }


def _keys(file: str) -> set[str]:
    """Every constant key of a dictionary in a source file."""
    return {
        str(key.value)
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }


def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))
