"""Answers that come late, each by its own time, so that they may come in another order than what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outbox_emulators.servicebus.edges import Edge, Edges, Owed


class DelayedAnswers:
    """What one link owes, beyond what it answers at once and in order."""

    def __init__(self, edges: Edges, after: Callable[[], None]) -> None:
        """`after` is called when an answer was given late, to send it."""
        self._edges = edges
        self._after = after
        self._timers: dict[Owed, asyncio.TimerHandle] = {}

    @property
    def pending(self) -> bool:
        """Whether an answer is owed."""
        return bool(self._timers)

    def give(self, answer: Callable[[], None]) -> None:
        """Give an answer now, or later where that is drawn."""
        delay_ms = self._edges.settlement_delay_ms()
        if delay_ms:
            self.owe(answer, delay_ms)
            return
        self.overtake()
        answer()

    def overtake(self) -> None:
        """Another answer is given now, of something that came later than what is owed, here or on other links."""
        if self._edges.owed:
            self._edges.meet(Edge.SETTLEMENT_REORDERED)

    def owe(self, answer: Callable[[], None], delay_ms: int) -> None:
        """Give an answer so many milliseconds later than now."""
        self._edges.meet(Edge.SETTLEMENT_DELAYED)
        owed = Owed()
        self._edges.owed[owed] = None
        loop = asyncio.get_running_loop()
        self._timers[owed] = loop.call_later(delay_ms / 1000, self._pay, owed, answer)

    def cancel(self) -> None:
        """Forget what is owed: the link is gone, and the engine must not be asked for its deliveries."""
        for owed, timer in self._timers.items():
            timer.cancel()
            del self._edges.owed[owed]
        self._timers.clear()

    def _pay(self, owed: Owed, answer: Callable[[], None]) -> None:
        del self._timers[owed]
        if next(iter(self._edges.owed)) is not owed:
            self._edges.meet(Edge.SETTLEMENT_REORDERED)
        del self._edges.owed[owed]
        answer()
        self._after()
