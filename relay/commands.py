"""The commands of `python -m relay` that the relay suggests, as they are pasted into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from relay.remedy import shell_word

_COMMAND = re.compile(r"python -m relay ((?:(?:quarantine|deadletters) )?[a-z]+)\b")

# By option, the commands that work on everything that the option would choose from, or on nothing of it.
_WITHOUT = {
    "--env-file": (),
    "--source": ("check", "deadletters", "explain", "install", "run"),
    "--stream": ("check", "install", "run"),
}

INSTALL = "python -m relay install --keep 30d (or however long positions are to be kept)"
"""The command that makes what is missing in an SQL database; the duration is the operator's decision."""


def line(command: str, *texts: str, options: Sequence[str] = (), chosen: Mapping[str, str] | None = None) -> str:
    """Return a command line.

    Args:
        command: The command's own words.
        texts: Its positional arguments: the texts of others, each of which stays one argument.
        options: Words of our own, such as `--source`, `sql`.
        chosen: Options whose values are texts of others, by their names.
    """
    values = [_option(name, text) for name, text in (chosen or {}).items()]
    return " ".join(["python -m relay", command, *options, *values, *map(shell_word, texts)])


def _option(name: str, text: str) -> str:
    word = shell_word(text)
    return f"'{name}={text}'" if word.startswith("'") else f"{name}={word}"


def set_aside(partition_key: str, identifier: str, *options: str) -> str:
    """Return the command that orders an event to be set aside; `options` are such as `--source`, `sql`."""
    return line("quarantine add", partition_key, identifier, options=options)


def discard(record_id: str) -> str:
    """Return the command that discards a record of the quarantine, or withdraws an order."""
    return line("quarantine discard", record_id)


def release_key(partition_key: str, *options: str) -> str:
    """Return the command that releases every record of a key in order, which unparks it."""
    return line("quarantine release", options=(*options, "--all"), chosen={"--partition-key": partition_key})


def with_option(text: str, name: str, value: str) -> str:
    """Return the text with `--env-file`, `--source` or `--stream` in each command that takes it and has none."""

    def complete(found: re.Match[str]) -> str:
        if found[1].split()[0] in _WITHOUT[name] or _has(name, found.string[found.end() :]):
            return found[0]
        return f"{found[0]} {name} {shlex.quote(value)}"

    return _COMMAND.sub(complete, text)


def _has(name: str, rest: str) -> bool:
    """Return True if a command has an option among those that follow its name.

    A file may be given more than once.
    """
    options = re.match(r"(?: --[a-z-]+ [^-\s]\S*)*", rest)
    return name != "--env-file" and options is not None and f" {name} " in options[0]
