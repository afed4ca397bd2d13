"""Progress of a benchmark on standard error: one changing line on a terminal, else a line for each measurement."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live as InPlace
from rich.text import Text


class Progress:
    """The current step and the last rate, drawn only when they change: no thread disturbs the timing."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        self._in_place = InPlace(console=self._console, auto_refresh=False, transient=True)
        self._started = time.monotonic()
        self._step = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._in_place.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._in_place.stop()

    def step(self, what: str) -> None:
        """Begin a new step."""
        self._step = what
        if self._console.is_terminal:
            self._show("")

    def rate(self, value: float, unit: str) -> None:
        """Show the latest measurement."""
        self._show(f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:,.2f} {unit}")

    def _show(self, measured: str) -> None:
        line = f"{time.monotonic() - self._started:6.1f} s  {self._step:<60} {measured:>20}".rstrip()
        if self._console.is_terminal:
            self._in_place.update(Text(line), refresh=True)
        else:
            self._console.print(line, markup=False)
