"""Env files: settings for one command that are not in its environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from relay.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def with_files(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """`environment` with the values of `files`, which take precedence, a later file over an earlier one.

    Raises:
        UsageError: A file cannot be read, or a line is not an assignment.
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
    """The assignments of an env file: `NAME=value` or `export NAME='value'`, one per line; `#` starts a comment.

    Quotes and backslashes have their meaning in a POSIX shell. Nothing is expanded: a `$` stays a `$`.

    Args:
        text: The text of the file.
        name: The name of the file, for errors.

    Raises:
        UsageError: A line is not an assignment. The message has its number, but not its text, which may be secret.
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
    words.commenters = ""  # for shlex a # within a word starts a comment, for a shell it does not
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
