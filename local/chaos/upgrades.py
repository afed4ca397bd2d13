"""Upgrades during a campaign: processes of an earlier release are replaced by this one's, and back, and again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from local.chaos.history import Histories
from local.chaos.hosts import replace_hosts
from local.stack.supervisor import Stack

_ROLLOUTS = 3


class Upgrades:
    """Replaces the processes of a stack one after the other, spread over the events, so that both releases run.

    A process that a fault ends meanwhile is replaced by one of the release that is being deployed.

    Attributes:
        done: Number of processes replaced by what replaced them: `upgraded`, `rolled back`.
    """

    def __init__(self, earlier: Path, *, events: int) -> None:
        """`earlier` is the folder of the earlier release; the campaign commits that many `events`."""
        self._earlier = earlier
        self._events = events
        self.done: Counter[str] = Counter()

    def begin(self, stack: Stack) -> None:
        """Let the stack start processes of the earlier release."""
        stack.release = self._earlier

    async def work(self, stack: Stack, history: Histories) -> None:
        """Upgrade, roll back and upgrade again. Processes that end have to be replaced by others."""
        wanted, number = len(stack.hosts), 0
        for rollout in range(_ROLLOUTS):
            is_rollback = bool(rollout % 2)
            stack.release = self._earlier if is_rollback else None
            for host in list(stack.hosts):
                number += 1
                await history.until_committed(self._events * number / (_ROLLOUTS * wanted + 1))
                await replace_hosts(stack, [host], wanted)
                self.done["rolled back" if is_rollback else "upgraded"] += 1
