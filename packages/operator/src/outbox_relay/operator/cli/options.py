"""The options that commands have in common, and the values of options: durations, numbers, env files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from outbox_relay.command_line import positive, python, value
from outbox_relay.operator.backends.backend import OperatorBackend, open_backend, open_backends
from outbox_relay.operator.cli.terminal import EXIT_CODES, Terminal
from relay.config.clients import ADMIN_VARIABLE
from relay.config.settings import Settings
from relay.config.streams import read_streams, stream_of
from relay.core.errors import UsageError
from relay.core.remedy import Invocation
from relay.core.times import format_duration, parse_duration

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@Parameter(parse=False)
@dataclass(frozen=True, slots=True)
class Session:
    """The surroundings of a command.

    Attributes:
        environment: The variables of the process, with the values of the env files.
        terminal: Where the command notes, counts and asks.
    """

    environment: Mapping[str, str]
    terminal: Terminal


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of every command.

    Attributes:
        json: print one JSON object
        verbose: show the log of the relay and of the SDKs on standard error
    """

    env_file: Annotated[
        tuple[Path, ...],
        Parameter(
            metavar="FILE",
            help="read settings from this file of NAME=value lines; the file takes precedence over the "
            "environment, and a later file over an earlier one",
        ),
    ] = ()
    json: bool = False
    verbose: bool = False

    @property
    def invocation(self) -> Invocation:
        """The way in which a remedy finds the same settings when it is pasted."""
        return self._invocation()

    def _invocation(self, *, source: str | None = None, stream: str | None = None) -> Invocation:
        return Invocation(python(), tuple(map(str, self.env_file)), source, stream)


Stream = Annotated[str | None, Parameter(metavar="NAME")]
"""The name of a stream."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AllStreams(Options):
    """The options of a command that works on every stream, or on one.

    Attributes:
        stream: only this stream, of those that check lists
    """

    stream: Stream = None

    @property
    def invocation(self) -> Invocation:
        """The way in which a remedy finds the same settings and stream when it is pasted."""
        return self._invocation(stream=self.stream)

    def streams(self, environment: Mapping[str, str]) -> list[Settings]:
        """Return the settings of the stream that `--stream` names, or of every stream.

        Raises:
            SettingsError: The settings or relay.toml are wrong.
            UsageError: There is no such stream.
        """
        streams = read_streams(environment)
        return streams if self.stream is None else [stream_of(streams, self.stream)]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OneStream(Options):
    """The options of a command that works on one stream.

    Attributes:
        stream: which stream; required if relay.toml makes several; check lists them
    """

    stream: Stream = None

    @property
    def invocation(self) -> Invocation:
        """The way in which a remedy finds the same settings and stream when it is pasted."""
        return self._invocation(stream=self.stream)

    def settings(self, environment: Mapping[str, str]) -> Settings:
        """Return the settings of the stream that `--stream` names, or of the only one.

        Raises:
            SettingsError: The settings or relay.toml are wrong.
            UsageError: There is no such stream, or there are several and none is named.
        """
        return stream_of(read_streams(environment), self.stream)


Source = Annotated[
    Literal["cosmos", "sql"] | None,
    Parameter(
        metavar="cosmos|sql", show_choices=False, help="which outbox; required if both COSMOS and SQL are set"
    ),
]
"""The outbox that a command works on."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OneOutbox(OneStream):
    """The options of a command that works on one outbox."""

    source: Source = None

    @property
    def invocation(self) -> Invocation:
        """The way in which a remedy finds the same settings, stream and outbox when it is pasted."""
        return self._invocation(source=self.source, stream=self.stream)

    def backend(self, environment: Mapping[str, str]) -> OperatorBackend:
        """Return the backend of the outbox that `--stream` and `--source` choose.

        Raises the errors of `settings` and of `open_backend`.
        """
        return open_backend(self.settings(environment), self.source)


def duration(help: str) -> Parameter:
    """Return the parameter of a duration."""
    return value(parse_duration, metavar="DURATION", help=help, show_default=format_duration)


Limit = Annotated[int, value(positive, metavar="N", help="at most this many")]
"""The most lines of a list."""

Key = Annotated[str | None, Parameter(metavar="KEY")]
"""A partition key."""

Ids = Annotated[tuple[str, ...], Parameter(metavar="ID")]
"""Ids, one for each time that the option is given."""

Yes = Annotated[bool, Parameter(help="do not ask for confirmation")]
"""The option that answers the question of a command."""

Administration = Annotated[
    str | None,
    Parameter(
        name="--servicebus-admin",
        metavar="ADDRESS",
        help="the Service Bus management endpoint, if its address is not the one in SERVICEBUS: a URL, used with "
        f"the credentials of SERVICEBUS, or a connection string (default: ${ADMIN_VARIABLE}; for the namespace of "
        "another setting NAME: $NAME_ADMIN)",
    ),
]
"""The address of the management endpoint."""


def command_app(name: str, examples: str) -> App:
    """Return the app of a command, or of a group of commands, whose help ends with examples and the exit codes."""
    return App(name=name, help_epilogue=epilogue(examples))


def epilogue(examples: str) -> str:
    """Return the last lines of the help of a command: its examples and the exit codes."""
    return f"{examples}\n\n{EXIT_CODES}"


def each_outbox(settings: Settings) -> list[tuple[str | None, OperatorBackend]]:
    """Return the backend of each outbox of a stream, and the `--source` that chooses it.

    It is None if there is only one outbox.
    """
    backends = open_backends(settings)
    return [(each.name if len(backends) > 1 else None, each) for each in backends]


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
