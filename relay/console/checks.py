"""`relay check` for the page: run when somebody asks for it, and not more often than once in a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from relay.console.model import Finding, Problem
from relay.errors import RelayError, first_line

Check = Callable[[], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has found.

    Attributes:
        at: When it ended, in seconds since 1970.
        findings: Those that ask for something first.
        problem: Why it could not be run; None if it was.
    """

    at: float
    findings: Sequence[Finding]
    problem: Problem | None = None


class Checks:
    """Runs a check at most once a `pause_s`, and for everybody who waits at once."""

    def __init__(self, check: Check, *, pause_s: float = 30.0, timeout_s: float = 60.0) -> None:
        self._check = check
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._ended = 0.0
        self.last: Checked | None = None

    async def run(self) -> Checked:
        """A new result, or the last one where it is younger than the pause."""
        async with self._lock:
            if self.last is None or time.monotonic() - self._ended >= self._pause_s:
                self.last = await self._new()
                self._ended = time.monotonic()
            return self.last

    async def _new(self) -> Checked:
        try:
            async with asyncio.timeout(self._timeout_s):
                findings = await self._check()
        except TimeoutError:
            text = f"it took more than {self._timeout_s:g} s: run `python -m relay check` in a shell"
            return Checked(time.time(), (), Problem("The check", text))
        except RelayError as error:
            return Checked(time.time(), (), Problem("The check", first_line(error)))
        ranks = {"error": 0, "unknown": 1, "warning": 2}
        return Checked(time.time(), sorted(findings, key=lambda each: ranks.get(each.severity, 3)))
