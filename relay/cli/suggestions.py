"""Completes the commands that a command suggests, so that they can be pasted and find the same settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relay.cli.shell import as_typed
from relay.cli.terminal import Result
from relay.commands import shell_word

_COMMAND = re.compile(r"python -m relay ((?:(?:quarantine|deadletters) )?[a-z]+)\b")

# The commands that work on every outbox of the settings, on the SQL one, or on none.
_WITHOUT_SOURCE = ("check", "deadletters", "install", "run")


def completed(text: str, arguments: argparse.Namespace) -> str:
    """The text, its commands with this Python, and the `--env-file` and `--source` of the one that was run."""
    return as_typed(with_options(text, arguments.env_file, getattr(arguments, "source", None)))


def with_options(text: str, env_files: Sequence[Path] = (), source: str | None = None) -> str:
    """The text, each command in it with these options, `--source` if the command takes it and does not have it."""
    files = [f" --env-file {shell_word(str(file))}" for file in env_files]

    def complete(found: re.Match[str]) -> str:
        given = found.string.startswith(" --source ", found.end())
        needs_source = source is not None and not given and found[1].split()[0] not in _WITHOUT_SOURCE
        return found[0] + "".join([*files, f" --source {source}" if needs_source else ""])

    return _COMMAND.sub(complete, text) if files or source else text


def with_completed(result: Result, arguments: argparse.Namespace) -> Result:
    """The result, each of its lines completed."""
    return replace(result, lines=[completed(line, arguments) for line in result.lines])
