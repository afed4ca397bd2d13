"""The results of commands, and the terminal: results go to standard output, everything else to standard error."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from outbox_relay.operator.cli.shell import as_json, printable, printable_lines
from relay.core.errors import UsageError
from relay.core.remedy import PLAIN, Invocation, render

# A terminal is updated often, a log now and then.
_TERMINAL_EVERY_S = 0.2
_LOG_EVERY_S = 10.0

WIDEST = 44
"""The columns of a terminal that a cell of a table takes at most: a UUID (36) fits."""


STYLES = {"faint": "2", "red": "1;31", "yellow": "1;33", "magenta": "1;35"}
"""Codes of the styles of text, by their names."""


class ExitCode(IntEnum):
    """Scripts depend on these values."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    SERVICE = 3
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes:
  0    success
  1    there are findings, or part of the work was not done; the output has the details
  2    wrong usage or wrong settings; nothing was done
  3    the outbox or Service Bus could not be reached, or refused the request
  130  interrupted (Ctrl-C)
  141  standard output was closed before all of it was written, as by head"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command.

    Attributes:
        code: The exit code of the process.
        data: The members of `--json` in addition to `command` and `exitCode`.
        lines: The output without `--json`, some of which may be sentences with remedies.
        styled: Its lines are printable already, but for the styles that they have.
    """

    code: ExitCode
    data: Mapping[str, Any]
    lines: list[str] = field(default_factory=list)
    styled: bool = False


@dataclass(slots=True)
class Progress:
    """The progress of a long operation: a line that changes on a terminal, a line now and then elsewhere.

    Attributes:
        what: The unit of the count, such as "events published".
        total: The final count; None if unknown.
    """

    what: str
    total: int | None
    stream: TextIO
    _shown_at: float = field(default_factory=time.monotonic)
    _shown: str = ""

    def update(self, done: int) -> None:
        """Show this count, unless one was shown a moment ago."""
        every = _TERMINAL_EVERY_S if self.stream.isatty() else _LOG_EVERY_S
        if time.monotonic() - self._shown_at >= every:
            self._shown_at = time.monotonic()
            self._write(self._line(done))

    def finish(self, done: int) -> None:
        self._write(self._line(done))
        self.end()

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Clear the progress line while other output is written, then redraw it."""
        shown, self._shown = self._shown, ""
        if shown:
            self.stream.write("\r" + " " * len(shown) + "\r")
        yield
        if shown:
            self._write(shown)

    def end(self) -> None:
        if self._shown:
            self._shown = ""
            self.stream.write("\n")
            self.stream.flush()

    def _line(self, done: int) -> str:
        return f"{self.what}: {done}" + ("" if self.total is None else f" of {self.total}")

    def _write(self, line: str) -> None:
        if self.stream.isatty():
            self.stream.write("\r" + line.ljust(len(self._shown)))
            self._shown = line
        else:
            self.stream.write(line + "\n")
        self.stream.flush()


@dataclass(slots=True, kw_only=True)
class Terminal:
    """Where a command writes its output, and where it reads answers."""

    as_json: bool
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    _progress: Progress | None = None

    def painted(self, text: str, style: str) -> str:
        """Return the text in one of `STYLES`, if results go to a terminal that shows them."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if shows_colours(self.out) else text

    def note(self, text: str) -> None:
        self._end_progress()
        print(printable_lines(text), file=self.err, flush=True)

    def progress(self, what: str, total: int | None) -> Progress:
        """Count a long operation on standard error."""
        self._end_progress()
        self._progress = Progress(what, total, self.err)
        return self._progress

    def log_handler(self) -> logging.Handler:
        """Return a handler that writes to standard error, above the count of a long operation."""
        terminal = self

        class Handler(logging.StreamHandler[TextIO]):
            def format(self, record: logging.LogRecord) -> str:
                return printable_lines(super().format(record))

            def emit(self, record: logging.LogRecord) -> None:
                with terminal._progress.interrupted() if terminal._progress else nullcontext():
                    super().emit(record)

        return Handler(self.err)

    def require_answers(self) -> None:
        """Raise UsageError if standard input is no terminal, so that nobody can be asked."""
        if not self.stdin.isatty():
            raise UsageError("cannot ask for confirmation, as standard input is no terminal: add --yes")

    def confirm(self, question: str) -> bool:
        """Ask on standard error; only a whole `yes` confirms."""
        print(f"{printable(question)} Type yes to continue: ", end="", file=self.err, flush=True)
        return self.stdin.readline().strip().lower() == "yes"

    def show(self, command: str, result: Result, by: Invocation = PLAIN) -> None:
        """Print a result, as one JSON object or as lines, whose remedies are rendered for whoever ran it."""
        self._end_progress()
        if self.as_json:
            whole = {"command": command, "exitCode": int(result.code), **result.data}
            print(as_json(whole, indent=2), file=self.out, flush=True)
        else:
            for line in result.lines:
                print(line if result.styled else printable(render(line, by)), file=self.out)
            self.out.flush()

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.end()
            self._progress = None


def shows_colours(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the stream is a terminal with colours.

    NO_COLOR or FORCE_COLOR has precedence (https://no-color.org).
    """
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, for a command that works until it is stopped."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def set_stop(*_: object) -> None:
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not by the loop, whose handlers do not exist on Windows.
        signal.signal(number, set_stop)
    return stop


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns of bounded widths; none without rows."""
    if not rows:
        return []
    cells = [list(header), *([bounded(cell) for cell in row] for row in rows)]
    widths = [max(_width(line[column]) for line in cells) for column in range(len(header))]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in cells]


def bounded(text: str) -> str:
    """Return `text` without characters that a terminal obeys, at most `WIDEST` wide.

    An ellipsis is what is cut off.
    """
    beginning = text[: 8 * WIDEST]
    shown = printable(beginning)
    if beginning == text and _width(shown) <= WIDEST:
        return shown
    while _width(shown) >= WIDEST:
        shown = shown[:-1]
    return f"{shown}…"


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)
