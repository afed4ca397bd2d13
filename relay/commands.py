"""The commands of `python -m relay` that the relay suggests, as they are pasted into a POSIX shell."""

from __future__ import annotations

import re
import shlex

_COMMAND = re.compile(r"python -m relay ((?:(?:quarantine|deadletters) )?[a-z]+)\b")

# By option, the commands that work on everything that the option would choose from, or on nothing of it.
_WITHOUT = {
    "--env-file": (),
    "--source": ("check", "deadletters", "explain", "install", "run"),
    "--stream": ("check", "install", "run"),
}

INSTALL = "python -m relay install --keep 30d (or however long positions are to be kept)"
"""The command that makes what is missing in an SQL database; the duration is the operator's decision."""


def line(*words: str) -> str:
    """A command with these words."""
    return " ".join(["python -m relay", *map(shell_word, words)])


def set_aside(partition_key: str, identifier: str, *options: str) -> str:
    """The command that orders an event to be set aside; `options` are further ones, such as `--source`, `sql`."""
    return line("quarantine", "add", *options, *positional(partition_key, identifier))


def discard(record_id: str, *options: str) -> str:
    """The command that discards a record; likewise."""
    return line("quarantine", "discard", *options, *positional(record_id))


def release_key(partition_key: str, *options: str) -> str:
    """The command that releases every record of a key in order, which unparks it; likewise."""
    # With "=", as a key may begin with a dash.
    return line("quarantine", "release", *options, "--all", f"--partition-key={partition_key}")


def with_option(text: str, name: str, value: str) -> str:
    """The text, each command in it with `--env-file`, `--source` or `--stream` if it takes that and has none."""

    def complete(found: re.Match[str]) -> str:
        if found[1].split()[0] in _WITHOUT[name] or _has(name, found.string[found.end() :]):
            return found[0]
        return f"{found[0]} {name} {shell_word(value)}"

    return _COMMAND.sub(complete, text)


def _has(name: str, rest: str) -> bool:
    """Whether a command has an option among those that follow its name; a file may be given more than once."""
    options = re.match(r"(?: --[a-z-]+ [^-\s]\S*)*", rest)
    return name != "--env-file" and options is not None and f" {name} " in options[0]


def positional(*words: str) -> list[str]:
    """The words as they are given where one that begins with a dash must not be an option."""
    return ["--", *words] if any(word.startswith("-") for word in words) else list(words)


def shell_word(text: str) -> str:
    """A word for a POSIX shell that means this text, made of printable characters alone.

    What cannot be printed would be taken by the terminal into which the command is pasted.
    """
    if text.isprintable():
        return shlex.quote(text)
    quoted = "".join(
        f"\\{each}" if each in "\\'" else each if each.isprintable() else escaped(each) for each in text
    )
    return f"$'{quoted}'"


def escaped(character: str) -> str:
    """The code of a character, as Python and the shell write it."""
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
