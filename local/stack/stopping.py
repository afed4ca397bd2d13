"""`python -m local down`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from local.stack import lock
from local.stack.arguments import EnvFile, Seconds

_POLL_EVERY_S = 0.05


async def run(*, timeout: Seconds = 60.0, env_file: EnvFile = lock.DEFAULT_ENV_FILE) -> int:
    """Stop the stack and all its parts: 0, also when none runs; 1 when its process had to be killed.

    Args:
        timeout: seconds after which its process is killed
    """
    stack = lock.running(env_file)
    if stack is None:
        print("No local stack runs.")
        return 0
    if await _ended(stack.pid, signal.SIGTERM, timeout, env_file):
        print("Stopped.")
        return 0
    # Every part ends when the pipe from this process closes.
    await _ended(stack.pid, getattr(signal, "SIGKILL", signal.SIGTERM), timeout, env_file)
    print(f"Process {stack.pid} did not stop within {timeout:g} s and was killed.", file=sys.stderr)
    return 1


async def _ended(pid: int, number: int, timeout_s: float, env_file: Path) -> bool:
    """Send a signal to the process that holds the lock; whether it has released it in time."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    until = time.monotonic() + timeout_s
    while (state := lock.running(env_file)) is not None and state.pid == pid:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_POLL_EVERY_S)
    return True
