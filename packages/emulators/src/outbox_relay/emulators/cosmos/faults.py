"""Faults that are injected into requests to the account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from outbox_relay.emulators import faults
from outbox_relay.emulators.cosmos.fault_plans import FaultPlan
from outbox_relay.emulators.cosmos.fault_targets import Target
from outbox_relay.emulators.cosmos.messages import Reply

_LOOK_EVERY_MS = 500

Fault = faults.Fault[FaultPlan]


class ConnectionCut(Exception):
    """The request gets no answer, and its connection no further one."""


class AnswerStopped(Exception):
    """Half of `reply` is sent, and nothing more."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Faults(faults.Faults[FaultPlan]):
    """The faults of one server."""

    def __init__(self, now_ms: Callable[[], int] = _monotonic_ms) -> None:
        super().__init__(now_ms)
        self._stopping = asyncio.Event()

    def apply_to(self, target: Target) -> Fault | None:
        """Return the fault that is applied to this request, if any."""
        return self.apply(lambda plan: plan.match.covers(target))

    async def hang(self, milliseconds: int | None) -> None:
        """Wait that long, but never longer than the server runs; None: as long as it runs."""
        try:
            async with asyncio.timeout(None if milliseconds is None else milliseconds / 1_000):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def hang_while(self, is_connected: Callable[[], bool]) -> None:
        """Wait for as long as the client stays connected, but never longer than the server runs."""
        while is_connected() and not self._stopping.is_set():
            await self.hang(_LOOK_EVERY_MS)

    def stop(self) -> None:
        """Release the requests that hang."""
        self._stopping.set()
