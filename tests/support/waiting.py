"""The ways in which a quick test waits in real time: no other sleep is allowed there (tests/unit/test_waits.py).

To wait for an event is better than each of them. None of them makes a test depend on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import time
from typing import Never

_LOOKS_EVERY_S = 0.01
LONGEST_S = 2.0
"""Limit of `elapse`, in seconds."""


async def look_again() -> None:
    """Pause before a condition is looked at again that nothing tells of, such as another process's state."""
    await asyncio.sleep(_LOOKS_EVERY_S)


def look_again_blocking() -> None:
    """Block the thread before a condition is looked at again that nothing tells of."""
    time.sleep(_LOOKS_EVERY_S)


async def forever() -> Never:
    """Wait until cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def elapse(seconds: float) -> None:
    """Let time pass, for what must not happen meanwhile, or to outlast a limit of the code under test.

    Raises:
        ValueError: `seconds` is more than `LONGEST_S`: the test is slow.
    """
    _check(seconds)
    await asyncio.sleep(seconds)


def elapse_blocking(seconds: float) -> None:
    """Let time pass in a thread; see `elapse`. Raises ValueError for more than `LONGEST_S`."""
    _check(seconds)
    time.sleep(seconds)


def _check(seconds: float) -> None:
    if seconds > LONGEST_S:
        raise ValueError(f"a quick test does not wait for {seconds} s: mark it as slow")
