"""`python -m local down`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from contextlib import suppress

from local.stack import lock

_POLL_EVERY_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `down`."""
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds after which its process is killed"
    )
    lock.add_option(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Stop the stack and all its parts: 0, also when none runs; 1 when its process had to be killed."""
    stack = lock.running(arguments.env_file)
    if stack is None:
        print("No local stack runs.")
        return 0
    if await _ended(stack.pid, signal.SIGTERM, arguments):
        print("Stopped.")
        return 0
    # Every part ends when the pipe from this process closes.
    await _ended(stack.pid, getattr(signal, "SIGKILL", signal.SIGTERM), arguments)
    print(f"Process {stack.pid} did not stop within {arguments.timeout:g} s and was killed.", file=sys.stderr)
    return 1


async def _ended(pid: int, number: int, arguments: argparse.Namespace) -> bool:
    """Send a signal to the process that holds the lock; whether it has released it in time."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    until = time.monotonic() + arguments.timeout
    while (state := lock.running(arguments.env_file)) is not None and state.pid == pid:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_POLL_EVERY_S)
    return True
