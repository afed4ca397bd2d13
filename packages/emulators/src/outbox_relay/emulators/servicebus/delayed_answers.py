"""Answers that are delayed, each by its own time, so that their order may change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outbox_relay.emulators.servicebus.edges import Edge, Edges, OutstandingAnswer


class DelayedAnswers:
    """The delayed answers of one link."""

    def __init__(self, edges: Edges, after: Callable[[], None]) -> None:
        """`after` is called when a delayed answer was given, to send it."""
        self._edges = edges
        self._after = after
        self._timers: dict[OutstandingAnswer, asyncio.TimerHandle] = {}

    @property
    def pending(self) -> bool:
        """True while an answer is still to be given."""
        return bool(self._timers)

    def give(self, answer: Callable[[], None]) -> None:
        """Give an answer now, or later if that is drawn."""
        delay_ms = self._edges.settlement_delay_ms()
        if delay_ms:
            self.give_later(answer, delay_ms)
            return
        self.note_overtaking()
        answer()

    def note_overtaking(self) -> None:
        """Count an answer that is given now as overtaking those that are delayed, on this link or another."""
        if self._edges.outstanding:
            self._edges.meet(Edge.SETTLEMENT_REORDERED)

    def give_later(self, answer: Callable[[], None], delay_ms: int) -> None:
        """Give an answer after a delay."""
        self._edges.meet(Edge.SETTLEMENT_DELAYED)
        outstanding = OutstandingAnswer()
        self._edges.outstanding[outstanding] = None
        loop = asyncio.get_running_loop()
        self._timers[outstanding] = loop.call_later(delay_ms / 1000, self._give_delayed, outstanding, answer)

    def cancel(self) -> None:
        """Drop the delayed answers: the link is gone, and its deliveries must not be used any more."""
        for outstanding, timer in self._timers.items():
            timer.cancel()
            del self._edges.outstanding[outstanding]
        self._timers.clear()

    def _give_delayed(self, outstanding: OutstandingAnswer, answer: Callable[[], None]) -> None:
        del self._timers[outstanding]
        if next(iter(self._edges.outstanding)) is not outstanding:
            self._edges.meet(Edge.SETTLEMENT_REORDERED)
        del self._edges.outstanding[outstanding]
        answer()
        self._after()
