"""A load of the demo: what it writes, at which rate, and what a consumer makes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from local.demo.tally import Tally
from outbox_relay.inbox.messages import Handler


@dataclass(slots=True)
class Progress:
    """The counts of events raised, of requests or transactions, and of changes refused as outdated (412)."""

    events: int = 0
    requests: int = 0
    refused: int = 0


class Load(Protocol):
    """Writes events to the outbox of a stack.

    Attributes:
        matches_as: The name of the result of `matches` in the summary.
        progress: How far it is.
    """

    matches_as: str
    progress: Progress

    async def write(self, rate: float) -> None:
        """Write every event, at `rate` events a second in total; 0 for no limit."""

    def committed_at(self, event: Mapping[str, Any]) -> float:
        """Return when an event was committed, in seconds since 1970."""

    def handler(self, tally: Tally) -> Handler:
        """Return the consumer of the events; it records each message in the tally."""

    async def matches(self) -> bool:
        """Return True if what the consumer made of the events equals what the writers have stored."""

    def remark(self) -> str:
        """Return what else there is to say at the end."""


class Pace:
    """Spreads events evenly; `rate` is in events a second, 0 for no limit."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    async def take(self, events: int) -> None:
        """Wait until that many more events are due."""
        now = time.monotonic()
        self._next = max(self._next, now - 1.0) + events * self._interval
        if self._next > now:
            await asyncio.sleep(self._next - now)
