"""The outcomes of a link's transfers, sent in the order in which the transfers came, some of them delayed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from proton import Delivery

from outbox_relay.emulators.servicebus.errors import ServiceBusError


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a transfer: accepted or, with an error, rejected; the link may be detached after it."""

    error: ServiceBusError | None = None
    detaches: bool = False


Send = Callable[[Delivery, Outcome], None]


class Acknowledgements:
    """Sends each outcome when it is due, and none before an earlier one."""

    def __init__(self, send: Send, after: Callable[[], None]) -> None:
        """`send` hands one outcome to the engine; `after` is called when delayed ones were, to flush."""
        self._send = send
        self._after = after
        self._delayed: deque[tuple[float, Delivery, Outcome]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> bool:
        """True while an outcome is still to be sent."""
        return bool(self._delayed)

    def send(self, delivery: Delivery, outcome: Outcome, delay_ms: int) -> None:
        """Send an outcome after a delay, or at once if there is none and nothing is pending."""
        if not delay_ms and not self._delayed:
            self._send(delivery, outcome)
            return
        due = asyncio.get_running_loop().time() + delay_ms / 1000
        if self._delayed:
            due = max(due, self._delayed[-1][0])
        self._delayed.append((due, delivery, outcome))
        if self._timer is None:
            self._arm()

    def cancel(self) -> None:
        """Drop what is pending: the link is gone, and its deliveries must not be used any more."""
        self._delayed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._delayed[0][0], self._send_due)

    def _send_due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            _, delivery, outcome = self._delayed.popleft()
            self._send(delivery, outcome)
        if self._delayed:
            self._arm()
        self._after()
