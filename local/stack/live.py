"""Shows a running stack's rates: one changing line on a terminal, otherwise a line at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import aiohttp
from azure.core.exceptions import AzureError
from rich.console import Console
from rich.live import Live
from rich.table import Table

from local.stack.rates import Rates
from local.stack.readings import Readings

TERMINAL_EVERY_S = 1.0
LOG_EVERY_S = 10.0

# A reading takes several requests. On a terminal, an idle stack is read this many times less often.
_IDLE_FACTOR = 3

Show = Callable[[Rates], None]


async def show_rates(readings: Readings, stream: TextIO, every_s: float | None) -> None:
    """Show rates until cancelled.

    Args:
        readings: Of the stack.
        stream: Standard error, for instance; a terminal gets one changing line.
        every_s: Seconds between readings; None for the stream's default.
    """
    console = Console(file=stream)
    # A dumb terminal cannot rewrite a line.
    live = console.is_terminal and not console.is_dumb_terminal
    interval = every_s or (TERMINAL_EVERY_S if live else LOG_EVERY_S)
    with _on_terminal(console) if live else _in_log(stream) as show:
        before = None
        idle = False
        while True:
            try:
                after = await readings.take()
            except (aiohttp.ClientError, AzureError, OSError):
                # A part is restarting, or an injected fault made it fail. If a part ends, the stack ends.
                after = None
            if before is not None and after is not None:
                rates = Rates.between(before, after)
                show(rates)
                idle = rates.idle
            before = after or before
            await asyncio.sleep(interval * (_IDLE_FACTOR if idle and live else 1))


@contextmanager
def _on_terminal(console: Console) -> Iterator[Show]:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda rates: live.update(table(rates), refresh=True)


@contextmanager
def _in_log(stream: TextIO) -> Iterator[Show]:
    quiet = True

    def show(rates: Rates) -> None:
        nonlocal quiet
        # The first idle line is shown, so that the log ends with the current state.
        if not (quiet and rates.idle):
            print(rates.line(), file=stream, flush=True)
        quiet = rates.idle

    yield show


def table(rates: Rates) -> Table:
    """Return a table of the numbers under their names."""
    shown = Table(box=None, pad_edge=False)
    for name, _ in rates.columns():
        shown.add_column(name, justify="right")
    shown.add_row(*(value for _, value in rates.columns()))
    return shown
