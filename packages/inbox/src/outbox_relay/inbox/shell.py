"""Conveniences for command lines: suggestions for typos, no traceback after `| head`, commands to paste.

The distributions of `outbox_relay` are installed without one another: `changefeed`, `emulators`, `inbox` and
`operator` have this module each, and a test keeps the four alike.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

OUTPUT_CLOSED = 141
"""Exit code of a command whose output nobody reads any more: that of a program which SIGPIPE ends."""

_SCRIPTS = {"outbox-relay-changefeed": "outbox_relay.changefeed", "outbox-relay-inbox": "outbox_relay.inbox"}
"""Installed commands, and the modules that they run: the same programs as `python -m MODULE`."""

_INVALID_CHOICE = re.compile(r"invalid choice: (['\"])(.*?)\1 ")


class Parser(argparse.ArgumentParser):
    """A parser that suggests the command or option that was meant, and whose help can be pasted."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the known arguments, and report a leftover option as an error of the command that has it."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown and not any(each.startswith("-") for each in unknown):
            unknown = self._take_later_words(parsed, unknown)
        if unknown:
            options = [each.partition("=")[0] for each in unknown if each.startswith("--")]
            hint = _suggestion(options, self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed, unknown

    def _take_later_words(self, parsed: Any, words: list[str]) -> list[str]:
        """Add words that follow an option to the argument that takes any number; return those that none takes.

        Argparse ends such an argument at the first option behind it.
        """
        for action in self._get_positional_actions():
            if action.nargs == argparse.ZERO_OR_MORE and action.type is None and action.choices is None:
                setattr(parsed, action.dest, [*(getattr(parsed, action.dest) or ()), *words])
                return []
        return words

    def error(self, message: str) -> NoReturn:
        """Report a usage error as argparse does, and suggest the choice that was probably meant."""
        found = _INVALID_CHOICE.search(message)
        if found is not None:
            choices = (str(choice) for action in self._actions for choice in action.choices or ())
            message += _suggestion([found[2]], choices)
        self.print_usage(sys.stderr)
        self.exit(2, f"{as_typed(self.prog)}: error: {message}\n")

    def format_help(self) -> str:
        """Return argparse's help, with commands as they are typed in this environment."""
        return as_typed(super().format_help())

    def format_usage(self) -> str:
        """Return argparse's usage line, with commands as they are typed in this environment."""
        return as_typed(super().format_usage())


def _suggestion(words: Iterable[str], known: Iterable[str]) -> str:
    import difflib  # only an error needs it

    # Without their dashes, which would make any two options alike.
    by_name = {each.lstrip("-"): each for each in known}
    names = [name for word in words for name in difflib.get_close_matches(word.lstrip("-"), by_name, n=1)]
    return f". Did you mean {', '.join(by_name[name] for name in names)}?" if names else ""


def python() -> str:
    """Return the command that starts this Python from a shell in the current directory."""
    program = sys.executable
    if shutil.which("python") == program:
        return "python"
    with suppress(ValueError):
        program = str(Path(program).relative_to(Path.cwd()))
    if os.name == "nt":
        return f'& "{program}"' if " " in program else program
    return shlex.quote(program)


def as_typed(text: str) -> str:
    """Return the text with each `python -m …` as it is typed here: as the running script, or with this Python."""
    script = Path(sys.argv[0]).stem
    if script in _SCRIPTS:
        text = re.sub(rf"(?<![\w./-])python -m {_SCRIPTS[script]}\b", script, text)
    return re.sub(r"(?<![\w./-])python -m (?=\w)", lambda _: f"{python()} -m ", text)


def printable(text: str) -> str:
    """Return the text on one line, with escapes (`\\x1b`) for the characters that a terminal obeys or hides."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Return the text with each of its lines made printable by `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def as_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Return the value in JSON, with escapes for what `printable` replaces and standard output cannot encode."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not is_unicode, indent=indent, default=default)
    # Within JSON only a text has such characters; between its lines there are line feeds.
    return "\n".join(
        line
        if line.isprintable()
        else "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
        for line in text.split("\n")
    )


def run(main: Callable[[], int]) -> int:
    """Run a command line; returns its exit code, or OUTPUT_CLOSED if nobody reads its output any more."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A code page may lack a character, which must not end the output.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_closed(sys.stdout):  # a connection of the command's own
            raise
        # Python flushes it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED


def _is_closed(stream: TextIO) -> bool:
    """Return True if nobody reads the stream; otherwise write an empty line to it."""
    try:
        os.write(stream.fileno(), b"\n")
    except BrokenPipeError:
        return True
    return False
