"""Completes the commands that a command suggests, so that they can be pasted and find the same settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relay.cli.shell import as_typed
from relay.cli.terminal import Result
from relay.commands import with_option


def completed(text: str, arguments: argparse.Namespace) -> str:
    """Return the text with complete commands.

    They have this Python, and the `--env-file`, `--source` and `--stream` of the one run.
    """
    chosen = vars(arguments)
    text = with_choice(text, source=chosen.get("source"), stream=chosen.get("stream"))
    return with_files(text, arguments.env_file)


def with_files(text: str, env_files: Sequence[Path]) -> str:
    """The text, its commands with this Python and these env files."""
    for file in reversed(env_files):
        text = with_option(text, "--env-file", str(file))
    return as_typed(text)


def with_choice(text: str, *, source: str | None = None, stream: str | None = None) -> str:
    """Return the text with these options in each command that takes them and does not have them."""
    for name, value in (("--stream", stream), ("--source", source)):
        if value is not None:
            text = with_option(text, name, value)
    return text


def with_completed(result: Result, arguments: argparse.Namespace) -> Result:
    """Return the result with each of its lines completed."""
    return replace(result, lines=[completed(line, arguments) for line in result.lines])
