"""The commands' arguments: options, the types of their values, env files, and the choice of one outbox."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from outbox_relay.operator.backends.backend import SOURCES, OperatorBackend, open_backend, open_backends
from outbox_relay.operator.cli import shell
from outbox_relay.operator.cli.terminal import EXIT_CODES, Result, Terminal
from relay.config.clients import ManagementAddress, administration_address
from relay.config.settings import Settings
from relay.config.streams import read_streams, stream_of
from relay.core.errors import UsageError
from relay.core.remedy import ENCODED, Invocation, parsed_word
from relay.core.times import format_duration, parse_duration

T = TypeVar("T")

Run = Callable[[argparse.Namespace, Mapping[str, str], Terminal], Awaitable[Result]]
"""A command: its arguments, the environment with the env files, and the terminal. It raises RelayError."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Parser(shell.Parser):
    """A parser whose errors about values have an example."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("type", int, whole_number)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, and read each text as `relay.core.remedy` writes it.

        A text is read once it is known which argument it is, so that none becomes an option.
        """
        parsed = super().parse_args(args, namespace)
        for name, value in vars(parsed).items():
            try:
                setattr(parsed, name, _read(value))
            except ValueError:
                self.error(f"{name}: what follows {ENCODED} is no percent-encoded UTF-8")
        return parsed

    def add_duration(self, name: str, default: timedelta, text: str) -> None:
        text = f"{text} (default: {format_duration(default)})"
        self.add_argument(name, type=reported(parse_duration), default=default, metavar="DURATION", help=text)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(each) for each in value]
    return parsed_word(value) if isinstance(value, str) else value


class Commands:
    """The commands of a parser. The arguments of each have its `run`, and its name as `command`."""

    def __init__(self, parser: argparse.ArgumentParser, prefix: str = "") -> None:
        self._added = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
        self._prefix = prefix

    def group(self, name: str, summary: str, examples: str) -> Commands:
        """Add a command that has commands of its own."""
        return Commands(self._parser(name, summary, examples), f"{name} ")

    def add(
        self,
        name: str,
        summary: str,
        examples: str,
        run: Run,
        *,
        one_outbox: bool = False,
        one_stream: bool = False,
    ) -> Parser:
        """Add a command; returns the parser of its options.

        They have `--stream` if it works on one stream, and `--source` as well if it works on one outbox.
        """
        parser = self._parser(name, summary, examples)
        _add_common(parser)
        if one_outbox:
            add_source(parser)
        if one_outbox or one_stream:
            add_stream(parser, "required if relay.toml makes several")
        parser.set_defaults(run=run, command=f"{self._prefix}{name}")
        return parser

    def _parser(self, name: str, summary: str, examples: str) -> Parser:
        return self._added.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"{examples}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--env-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="read settings from this file of NAME=value lines; the file takes precedence over the environment, "
        "and a later file over an earlier one",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--verbose", action="store_true", help="show the log of the relay and of the SDKs on standard error"
    )


def add_source(parser: Parser) -> None:
    """Add `--source`."""
    parser.add_argument(
        "--source",
        type=_source,
        metavar="|".join(SOURCES),
        help="which outbox; required if both COSMOS and SQL are set",
    )


def add_stream(parser: Parser, which: str) -> None:
    """Add `--stream`; `which` says what is chosen without it."""
    parser.add_argument("--stream", metavar="NAME", help=f"which stream; {which}; check lists them")


def _source(text: str) -> str:
    if text not in SOURCES:
        raise argparse.ArgumentTypeError(f"{text!r} is not an outbox: write {' or '.join(SOURCES)}")
    return text


def one_stream(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """Return the settings of the stream that `--stream` names, or of the only one.

    Raises:
        SettingsError: The settings or relay.toml are wrong.
        UsageError: There is no such stream, or there are several and none is named.
    """
    return stream_of(read_streams(environment), arguments.stream)


def invocation_of(arguments: argparse.Namespace) -> Invocation:
    """Return how these arguments were given, so that a remedy finds the same settings when it is pasted."""
    chosen = vars(arguments)
    files = tuple(map(str, arguments.env_file))
    return Invocation(shell.python(), files, chosen.get("source"), chosen.get("stream"))


def chosen_streams(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[Settings]:
    """Return the settings of the stream that `--stream` names, or of every stream.

    Raises UsageError for an unknown name, and SettingsError.
    """
    streams = read_streams(environment)
    return streams if arguments.stream is None else [stream_of(streams, arguments.stream)]


def one_outbox(arguments: argparse.Namespace, environment: Mapping[str, str]) -> OperatorBackend:
    """Return the backend of the outbox that `--stream` and `--source` choose.

    Raises the errors of `one_stream` and `open_backend`.
    """
    return open_backend(one_stream(arguments, environment), arguments.source)


def administration_of(
    settings: Settings, arguments: argparse.Namespace, environment: Mapping[str, str]
) -> ManagementAddress | None:
    """Return the address of a namespace's management endpoint, or None if the namespace's setting has it."""
    return administration_address(arguments.servicebus_admin, environment, settings.servicebus.setting)


def each_outbox(settings: Settings) -> list[tuple[str | None, OperatorBackend]]:
    """Return the backend of each outbox of a stream, and the `--source` that chooses it.

    It is None if there is only one outbox.
    """
    backends = open_backends(settings)
    return [(each.name if len(backends) > 1 else None, each) for each in backends]


def reported(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return `parse` as the type of an argument.

    Argparse shows the text of its ValueError, not the function's name.
    """

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write it as 3")
    return int(text)


def positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0: write it as 100")
    return int(text)


def port_number(text: str) -> int:
    """Parse a port number, as the type of an argument; 0 takes a free port."""
    if not (text.isascii() and text.isdecimal() and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to 65535")
    return int(text)


def with_files(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """Return `environment` with the values of env files. They take precedence, a later file over an earlier one.

    Raises:
        UsageError: A file cannot be read, or a line is not an assignment.
    """
    merged = dict(environment)
    for file in files:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--env-file {file} cannot be read: {error}") from error
        merged |= parse_env_file(text, str(file))
    return merged


def parse_env_file(text: str, name: str) -> dict[str, str]:
    """Parse an env file.

    It has an assignment per line: `NAME=value` or `export NAME='value'`; `#` starts a comment.

    Quotes and backslashes have their meaning in a POSIX shell. Nothing is expanded: a `$` stays a `$`.

    Raises:
        UsageError: A line is not an assignment. The message has its number, but not its text, which may be secret.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            values |= _assignment(line)
        except ValueError as error:
            raise UsageError(f"{name}, line {number}: {error}") from error
    return values


def _assignment(line: str) -> dict[str, str]:
    if line.lstrip().startswith("#"):
        return {}
    words = shlex.shlex(line, posix=True)
    words.whitespace_split = True
    words.commenters = ""  # for shlex a # within a word starts a comment, for a shell it does not
    word = words.get_token()
    if word == "export":
        word = words.get_token()
    if not word:
        return {}
    variable, equals, value = word.partition("=")
    rest = str(words.instream.readline()).strip()
    if not equals or not _NAME.fullmatch(variable) or (rest and not rest.startswith("#")):
        raise ValueError("write NAME=value, with quotes around a value with spaces")
    return {variable: value}
