"""A program of commands that run until they are done, or until a signal stops them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

from outbox_relay.command_line import Call, Program
from outbox_relay.emulators.process import heed_signals

EXIT_CODES = """\
exit codes:
  0    stopped, by a signal or as --exit-with-stdin says
  1    it could not start; standard error has the reason
  2    wrong usage, or a package is missing
  141  standard output was closed before all of it was written, as by head"""
"""Of the commands that serve until they are stopped."""


def main(program: Program, words: Sequence[str]) -> int:
    """Run the command that the words choose; returns its exit code. Wrong usage raises SystemExit(2)."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # The SDKs log every request at INFO.
    logging.getLogger("azure").setLevel(logging.WARNING)
    return asyncio.run(run(program.parse(words)))


async def run(call: Call) -> int:
    """Run a command, which `until_stopped` tells of signals; returns its exit code."""
    heed_signals()
    code: int = await call.function(*call.positional, **call.options)
    return code
