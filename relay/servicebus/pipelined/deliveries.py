"""The deliveries of a link: those that wait, and those that were begun and are not settled."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from relay.core.errors import RetryableError, SendError
from relay.servicebus.pipelined import sdk
from relay.servicebus.pipelined.credit import SERIAL
from relay.servicebus.transfers import Transfer

# Maximum bytes of unsettled transfers: enough to keep a link busy, and little compared with a batch for each key.
_HELD_BYTES = 4_194_304


class Delivery:
    """A transfer on its way.

    `result` is done once `Link.send` has an answer, or has given up. A delivery that was begun and given up stays
    unsettled until the peer settles it: it may still be accepted.

    Attributes:
        id: Its delivery-id; None before it is begun.
        outcome: The first outcome that the peer has said; None before.
    """

    __slots__ = (
        "accepted_late", "ends", "id", "may_send", "message_format", "outcome", "payload", "result", "timeout_s"
    )  # fmt: skip

    def __init__(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.payload = transfer.payload
        self.message_format = transfer.message_format
        self.timeout_s = timeout_s
        self.ends = loop.time() + timeout_s
        self.may_send = may_send
        self.accepted_late = accepted_late
        self.id: int | None = None
        self.outcome: Any = None
        self.result: asyncio.Future[None] = loop.create_future()

    def settle(self) -> bool:
        """Take its outcome as final; returns whether it was accepted after it had been given up."""
        accepted = bool(self.outcome) and sdk.ACCEPTED in self.outcome
        if self.result.done():
            if accepted:
                self.accepted_late()
            return accepted
        if accepted:
            self.result.set_result(None)
        else:
            self.result.set_exception(_refusal(self.outcome))
        return False

    def fail(self, error: Exception) -> None:
        """Fail the delivery with this error, unless it has an outcome already."""
        if not self.result.done():
            self.result.set_exception(error)


class Deliveries:
    """Each delivery waits, is begun in the order in which it was given, and is settled by the peer.

    Attributes:
        waiting: Those that wait for credit. Some may be given up already.
        unsettled: Those that were begun, by their ids, which follow one another.
        has_room: Whether more transfers should be encoded: those that are not settled take memory.
        idle: Set once none is waiting or unsettled.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting: deque[Delivery] = deque()
        self.unsettled: dict[int, Delivery] = {}
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.idle = asyncio.Event()
        self.idle.set()
        self._loop = loop
        self._held_bytes = 0
        # Ids follow one another; a drain makes the link's delivery-count skip some.
        self._ids = 0
        self._timer: asyncio.TimerHandle | None = None
        self._expires = math.inf

    def add(self, delivery: Delivery) -> None:
        """Let a delivery wait for its turn, and count its payload until `release`."""
        if delivery.ends < self._expires:
            self._expire_at(delivery.ends)
        self.idle.clear()
        self.waiting.append(delivery)
        self._held_bytes += len(delivery.payload)
        if self._held_bytes >= _HELD_BYTES:
            self.has_room.clear()

    def begin_next(self) -> Delivery | None:
        """Begin the next delivery that may be sent, and return it with an id, or None if there is none."""
        while self.waiting:
            delivery = self.waiting.popleft()
            if delivery.result.done():
                continue
            try:
                delivery.may_send()
            except SendError as error:
                delivery.fail(error)
                continue
            delivery.id = self._ids % SERIAL
            self._ids += 1
            self.unsettled[delivery.id] = delivery
            return delivery
        self._note_idle()
        return None

    def between(self, first: int, last: int) -> list[Delivery]:
        """Return the unsettled deliveries with ids from `first` to `last`, which are serial numbers."""
        unsettled = self.unsettled
        further = (last - first) % SERIAL
        if further < len(unsettled):
            ids = ((first + number) % SERIAL for number in range(further + 1))
            return [unsettled[each] for each in ids if each in unsettled]
        return [each for number, each in unsettled.items() if (number - first) % SERIAL <= further]

    def forget(self, delivery: Delivery) -> None:
        """Forget a delivery that is settled, was aborted, or never leaves."""
        if delivery.id is not None:
            self.unsettled.pop(delivery.id, None)
        elif delivery in self.waiting:
            self.waiting.remove(delivery)
        self._note_idle()

    def lose(self, in_flight: Exception, waiting: Exception) -> None:
        """Fail all deliveries because the link is over: the fate of those in flight is unknown."""
        for delivery in self.unsettled.values():
            delivery.fail(in_flight)
        for delivery in self.waiting:
            delivery.fail(waiting)
        self.unsettled.clear()
        self.waiting.clear()
        self._expire_at(math.inf)
        self.idle.set()

    def release(self, delivery: Delivery) -> None:
        """Release a delivery that is no longer awaited, so that its payload is not held in memory for long."""
        self._held_bytes -= len(delivery.payload)
        if self._held_bytes < _HELD_BYTES:
            self.has_room.set()

    def _expire_at(self, ends: float) -> None:
        """Look for deliveries that have timed out. One timer for all: nearly all are settled long before."""
        if self._timer is not None:
            self._timer.cancel()
        self._expires = ends
        self._timer = self._loop.call_at(ends, self._expire) if ends < math.inf else None

    def _expire(self) -> None:
        now = self._loop.time()
        pending = [each for each in (*self.unsettled.values(), *self.waiting) if not each.result.done()]
        for delivery in pending:
            if delivery.ends <= now:
                delivery.fail(TimeoutError())
        self._expire_at(min((each.ends for each in pending if each.ends > now), default=math.inf))

    def _note_idle(self) -> None:
        if not self.unsettled and not self.waiting:
            self.idle.set()


def _refusal(outcome: Any) -> SendError:
    """Return the error of a delivery that was not accepted."""
    if outcome and sdk.REJECTED in outcome:
        fields = outcome[sdk.REJECTED]
        if error := sdk.refused(fields[0] if fields else None):
            return error
    # Released or modified: not processed, for a reason the peer does not say. Or settled without an outcome.
    return RetryableError("Service Bus has not accepted the message, and gives no reason.", refused=True)
