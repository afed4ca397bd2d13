"""The terminal: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from relay.cli.results import Result

# A terminal is updated often, a log now and then.
_TERMINAL_EVERY_S = 0.2
_LOG_EVERY_S = 10.0


@dataclass(slots=True)
class Progress:
    """The progress of a long operation: a line that changes on a terminal, a line now and then elsewhere.

    Attributes:
        what: What is counted, such as "events published".
        total: The final count; None if it is not known.
    """

    what: str
    total: int | None
    stream: TextIO
    _shown_at: float = field(default_factory=time.monotonic)
    _width: int = 0

    def update(self, done: int) -> None:
        """Show this count, unless one was shown a moment ago."""
        every = _TERMINAL_EVERY_S if self.stream.isatty() else _LOG_EVERY_S
        if time.monotonic() - self._shown_at >= every:
            self._shown_at = time.monotonic()
            self._write(self._line(done))

    def finish(self, done: int) -> None:
        """Show the last count."""
        self._write(self._line(done))
        if self.stream.isatty():
            self.stream.write("\n")
            self.stream.flush()

    def _line(self, done: int) -> str:
        return f"{self.what}: {done}" + ("" if self.total is None else f" of {self.total}")

    def _write(self, line: str) -> None:
        if self.stream.isatty():
            self.stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()


class Terminal:
    """Where a command writes its output, and where it reads answers."""

    def __init__(
        self,
        *,
        as_json: bool,
        out: TextIO | None = None,
        err: TextIO | None = None,
        stdin: TextIO | None = None,
    ) -> None:
        self._as_json = as_json
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._in = stdin or sys.stdin

    def note(self, text: str) -> None:
        """Write a remark to standard error."""
        print(text, file=self._err, flush=True)

    def progress(self, what: str, total: int | None) -> Progress:
        """Count a long operation on standard error."""
        return Progress(what, total, self._err)

    @property
    def can_ask(self) -> bool:
        """Whether standard input is a terminal."""
        return self._in.isatty()

    def confirm(self, question: str) -> bool:
        """Ask on standard error; only a whole `yes` confirms."""
        print(f"{question} Type yes to continue: ", end="", file=self._err, flush=True)
        return self._in.readline().strip().lower() == "yes"

    def show(self, command: str, result: Result) -> None:
        """Print a result, as one JSON object or as lines."""
        if self._as_json:
            whole = {"command": command, "exitCode": int(result.code), **result.data}
            print(json.dumps(whole, ensure_ascii=False, indent=2), file=self._out, flush=True)
        else:
            for line in result.lines:
                print(line, file=self._out)
            self._out.flush()
