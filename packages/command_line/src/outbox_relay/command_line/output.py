"""Texts, tables and JSON that are safe to print, and output that nobody reads any more."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

OUTPUT_CLOSED = 141
"""Exit code of a command whose output nobody reads any more: that of a program which SIGPIPE ends."""

WIDEST = 44
"""The columns of a terminal that a cell of a table takes at most: a UUID (36) fits."""

# No table is as wide, so no cell is cut to the width of a terminal.
_UNBOUNDED = 10_000


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
    """Return the text with each `python -m …` as it is typed here, with this Python."""
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


@dataclass(frozen=True, slots=True)
class Table:
    """A table with aligned columns.

    Attributes:
        header: The names of the columns.
        rows: The texts of the cells, with any characters.
        widest: Maximum columns of a cell; an ellipsis replaces the rest. None for no bound.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    widest: int | None = WIDEST

    def lines(self) -> list[str]:
        """Return the lines of the table; none without rows."""
        if not self.rows:
            return []
        # Not before it is used: rich takes a third of a start.
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in self.header:
            grid.add_column(Text(name), no_wrap=True, overflow="ellipsis", max_width=self.widest)
        for row in self.rows:
            # Nobody sees more of a cell than its beginning, and rich measures all of it.
            grid.add_row(*(Text(printable(cell[: 8 * self.widest] if self.widest else cell)) for cell in row))
        plain = Console(width=_UNBOUNDED, color_system=None)
        with plain.capture() as captured:
            plain.print(grid)
        return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def console(stream: TextIO) -> Console:
    """Return the console of a stream: with colours on a terminal, unless NO_COLOR or FORCE_COLOR decides."""
    from outbox_relay.command_line.rendering import OutputConsole

    return OutputConsole(file=stream, color_system=color_system(), highlight=False, emoji=False)


def color_system() -> Literal["auto"] | None:
    """Return the colours for a console of rich: none with NO_COLOR, bold and dim included."""
    return None if os.environ.get("NO_COLOR") else "auto"


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
