"""What a link owes its sender: the outcomes of its transfers, in the order they came, some of them late."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from proton import Delivery

from outbox_emulators.servicebus.errors import ServiceBusError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transfer came to: accepted without an error, rejected with it, and then, perhaps, a detach."""

    error: ServiceBusError | None = None
    detaches: bool = False


Give = Callable[[Delivery, Outcome], None]


class Acknowledgements:
    """Gives each outcome when it is due, and none before the one that came before it."""

    def __init__(self, give: Give, after: Callable[[], None]) -> None:
        """`give` tells one outcome; `after` is called when some were given late, to send them."""
        self._give = give
        self._after = after
        self._owed: deque[tuple[float, Delivery, Outcome]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> bool:
        """Whether an outcome is owed."""
        return bool(self._owed)

    def owe(self, delivery: Delivery, outcome: Outcome, delay_ms: int) -> None:
        """Give an outcome after a delay, or at once if there is none and nothing is owed."""
        if not delay_ms and not self._owed:
            self._give(delivery, outcome)
            return
        due = asyncio.get_running_loop().time() + delay_ms / 1000
        if self._owed:
            due = max(due, self._owed[-1][0])
        self._owed.append((due, delivery, outcome))
        if self._timer is None:
            self._arm()

    def cancel(self) -> None:
        """Forget what is owed: the link is gone, and the engine must not be asked for its deliveries."""
        self._owed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._owed[0][0], self._pay)

    def _pay(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._owed and self._owed[0][0] <= now:
            _, delivery, outcome = self._owed.popleft()
            self._give(delivery, outcome)
        if self._owed:
            self._arm()
        self._after()
