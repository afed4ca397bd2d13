"""JSON with comments, as in the official emulator's sample configuration and in the host's files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


class JsonError(ValueError):
    """The text is not JSON."""


def read(path: Path) -> Any:
    """Parse a user's file, which may begin with a byte order mark. Raises JsonError and OSError."""
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8: {error}") from error
    return load(text)


def load(text: str) -> Any:
    """Parse JSON that may hold `//` and `/* */` comments. Raises JsonError saying where it is wrong."""
    try:
        return json.loads(_COMMENT.sub(_blank, text))
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error


def _blank(match: re.Match[str]) -> str:
    """Keep a string; replace a comment by blanks, so that positions in error messages stay correct."""
    return match[1] if match[1] is not None else re.sub(r"[^\n]", " ", match[0])
