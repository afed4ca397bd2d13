"""Env files: the settings for one command, without exporting them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from relay.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def with_files(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """`environment` with the values of `files`: a file outweighs it, a later file an earlier one.

    Raises:
        UsageError: A file cannot be read, or a line of it is no assignment.
    """
    merged = dict(environment)
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--env-file {file} cannot be read: {error}") from error
        merged |= parse(text, str(file))
    return merged


def parse(text: str, name: str) -> dict[str, str]:
    """The assignments of an env file: `NAME=value` or `export NAME='value'`, one a line; `#` starts a comment.

    Quotes and backslashes mean what they mean to a POSIX shell. Nothing is expanded: a `$` stays a `$`.

    Args:
        text: The file's text.
        name: What errors call it.

    Raises:
        UsageError: With the number of the line that is no assignment. Its value, perhaps a secret, is not told.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            assignment = _assignment(line)
        except ValueError as error:
            raise UsageError(f"{name}, line {number}: {error}") from error
        if assignment is not None:
            variable, value = assignment
            values[variable] = value
    return values


def _assignment(line: str) -> tuple[str, str] | None:
    if line.lstrip().startswith("#"):
        return None
    words = shlex.shlex(line, posix=True)
    words.whitespace_split = True
    words.commenters = ""  # to shlex a # within a word is one too, to a shell it is not
    word = words.get_token()
    if word == "export":
        word = words.get_token()
    if not word:
        return None
    variable, equals, value = word.partition("=")
    rest = str(words.instream.readline()).strip()
    if not equals or not _NAME.fullmatch(variable) or (rest and not rest.startswith("#")):
        raise ValueError("write NAME=value, with quotes around a value with spaces")
    return variable, value
