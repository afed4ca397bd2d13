"""The results of commands, and the terminal: results go to standard output, everything else to standard error."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from outbox_relay.command_line import Table, as_json, console, printable, printable_lines
from relay.core.errors import UsageError
from relay.core.remedy import PLAIN, Invocation, render

_LOG_EVERY_S = 10.0


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
        lines: The output without `--json`. Some may be sentences with remedies or tables; a Text has styles,
            and has to be printable.
    """

    code: ExitCode
    data: Mapping[str, Any]
    lines: Sequence[str | Text | Table] = field(default_factory=list)


class Progress:
    """The count of a long operation: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, what: str, total: int | None, console: Console) -> None:
        """Show the count.

        Args:
            what: The unit of the count, such as "events published".
            total: The final count; None if unknown.
            console: The terminal, or a file.
        """
        self._what, self._total, self._console = what, total, console
        self._shown_at = time.monotonic()
        self._bar: Bar | None = None
        self._task = TaskID(0)
        # With FORCE_COLOR, rich takes a file for a terminal.
        if console.file.isatty():
            count = [MofNCompleteColumn()] if total is not None else [TextColumn("{task.completed}")]
            self._bar = Bar(TextColumn("{task.description}"), BarColumn(), *count, console=console)
            self._task = self._bar.add_task(what, total=total)
            self._bar.start()

    def update(self, done: int) -> None:
        """Show this count; in a file, unless one was shown a moment ago."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
        elif time.monotonic() - self._shown_at >= _LOG_EVERY_S:
            self._shown_at = time.monotonic()
            self._write(done)

    def finish(self, done: int) -> None:
        """Show the last count, and end."""
        if self._bar is None:
            self._write(done)
        else:
            self.update(done)
            self.end()

    def end(self) -> None:
        """Leave the last count on the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def _write(self, done: int) -> None:
        of = "" if self._total is None else f" of {self._total}"
        print(f"{self._what}: {done}{of}", file=self._console.file, flush=True)


@dataclass(slots=True, kw_only=True)
class Terminal:
    """Where a command writes its output, and where it reads answers."""

    as_json: bool
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    _console: Console = field(init=False)
    _progress: Progress | None = None

    def __post_init__(self) -> None:
        self._console = console(self.err)

    def note(self, text: str) -> None:
        """Print a remark on standard error."""
        self.end_progress()
        print(printable_lines(text), file=self.err, flush=True)

    def progress(self, what: str, total: int | None) -> Progress:
        """Count a long operation on standard error."""
        self.end_progress()
        self._progress = Progress(what, total, self._console)
        return self._progress

    def end_progress(self) -> None:
        """End the count of a long operation, so that the next line begins below it."""
        if self._progress is not None:
            self._progress.end()
            self._progress = None

    def log_handler(self) -> logging.Handler:
        """Return a handler that writes to standard error, above the count of a long operation."""
        terminal = self._console

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                try:
                    terminal.print(Text(printable_lines(self.format(record))), soft_wrap=True)
                except Exception:  # noqa: BLE001
                    # A log that cannot be written stops no command.
                    self.handleError(record)

        return Handler()

    def require_answers(self) -> None:
        """Raise UsageError if standard input is no terminal, so that nobody can be asked."""
        if not self.stdin.isatty():
            raise UsageError("cannot ask for confirmation, as standard input is no terminal: add --yes")

    def confirm(self, question: str) -> bool:
        """Ask on standard error; only a whole `yes` confirms."""
        self.end_progress()
        print(f"{printable(question)} Type yes to continue: ", end="", file=self.err, flush=True)
        return self.stdin.readline().strip().lower() == "yes"

    def show(self, command: str, result: Result, by: Invocation = PLAIN) -> None:
        """Print a result, as one JSON object or as lines, whose remedies are rendered for whoever ran it."""
        self.end_progress()
        if self.as_json:
            whole = {"command": command, "exitCode": int(result.code), **result.data}
            print(as_json(whole, indent=2), file=self.out, flush=True)
            return
        styles = console(self.out)
        for line in result.lines:
            if isinstance(line, Text):
                styles.print(line, soft_wrap=True)
                continue
            for each in line.lines() if isinstance(line, Table) else (line,):
                print(printable(render(each, by)), file=self.out)
        self.out.flush()


def stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, for a command that works until it is stopped."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def set_stop(*_: object) -> None:
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not by the loop, whose handlers do not exist on Windows.
        signal.signal(number, set_stop)
    return stop
