"""Answers that come late, each by its own time, so that they may come in another order than what they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .edges import Edge, Edges


class LateAnswers:
    """What one link owes, beyond what it answers at once and in order."""

    def __init__(self, edges: Edges, after: Callable[[], None]) -> None:
        """`after` is called when an answer was given late, to send it."""
        self._edges = edges
        self._after = after
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._number = 0

    @property
    def pending(self) -> bool:
        """Whether an answer is owed."""
        return bool(self._timers)

    def give(self, answer: Callable[[], None]) -> None:
        """Give an answer now, or later where that is drawn; one given now may overtake those that are owed."""
        delay_ms = self._edges.settlement_delay_ms()
        if delay_ms:
            self.owe(answer, delay_ms)
            return
        self.overtake()
        answer()

    def overtake(self) -> None:
        """Another answer is given now, of something that came later than what is owed."""
        if self._timers:
            self._edges.meet(Edge.SETTLEMENT_REORDERED)

    def owe(self, answer: Callable[[], None], delay_ms: int) -> None:
        """Give an answer so many milliseconds later than now."""
        self._edges.meet(Edge.SETTLEMENT_DELAYED)
        self._number += 1
        number = self._number
        self._timers[number] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._pay, number, answer)

    def cancel(self) -> None:
        """Forget what is owed: the link is gone, and the engine must not be asked for its deliveries."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _pay(self, number: int, answer: Callable[[], None]) -> None:
        del self._timers[number]
        if any(earlier < number for earlier in self._timers):
            self._edges.meet(Edge.SETTLEMENT_REORDERED)
        answer()
        self._after()
