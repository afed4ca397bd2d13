"""Completes the commands that a command suggests, so that they can be pasted and find the same settings."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from relay.cli.shell import as_typed
from relay.cli.terminal import Result
from relay.commands import shell_word

_COMMAND = re.compile(r"python -m relay ((?:(?:quarantine|deadletters) )?[a-z]+)\b")

# The commands that work on every outbox of the settings, or on the SQL one.
_WITHOUT_SOURCE = ("check", "install", "run")


def completed(text: str, arguments: argparse.Namespace) -> str:
    """The text, its commands with this Python, and the `--env-file` and `--source` of the one that was run."""
    files = [f" --env-file {shell_word(str(file))}" for file in arguments.env_file]
    source = getattr(arguments, "source", None)

    def with_options(found: re.Match[str]) -> str:
        given = found.string.startswith(" --source ", found.end())
        needs_source = source is not None and not given and found[1] not in _WITHOUT_SOURCE
        return found[0] + "".join([*files, f" --source {source}" if needs_source else ""])

    return as_typed(_COMMAND.sub(with_options, text))


def with_completed(result: Result, arguments: argparse.Namespace) -> Result:
    """The result, each of its lines completed."""
    return replace(result, lines=[completed(line, arguments) for line in result.lines])
