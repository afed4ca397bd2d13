"""The outgoing side of a link: deliveries in the order in which they were given, their frames written together.

A delivery is begun when the peer has granted credit for it, and a frame leaves when the session's window has room.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, parts 2.5.6, 2.6.7 and 2.6.14
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from relay.core.errors import SendError
from relay.servicebus.pipelined import frames, sdk
from relay.servicebus.pipelined.credit import Credit
from relay.servicebus.pipelined.deliveries import Deliveries, Delivery

IN_FLIGHT = 256
"""Maximum number of deliveries that are sent and not settled."""

# Bytes that are written at once, while the next transfers are encoded. Less waits for what else comes in the same
# turn of the loop: a write takes as long as encoding a transfer.
_SOON_BYTES = 4_096
# Maximum in one write, and in this process' buffers.
_WRITE_BYTES = 65_536


class Outgoing:
    """Writes the deliveries of one link.

    Frames are left of one delivery at most, the last one that was begun; whether it may still be sent is asked
    again before they are written. Nothing is written until an earlier write has left this process, nor after
    `stop`.
    """

    def __init__(
        self, connection: sdk.Connection, deliveries: Deliveries, credit: Credit, drain: Callable[[], None]
    ) -> None:
        """Create the queue.

        `drain` is called once written frames have to leave this process; `drained` follows when they have.
        """
        self._connection = connection
        self._deliveries = deliveries
        self._credit = credit
        self._drain = drain
        self._loop = asyncio.get_running_loop()
        # The delivery of which frames are left, unless it was aborted.
        self._begun: Delivery | None = None
        self._frames: deque[bytes] = deque()
        self._soon_bytes = 0
        self._is_due = False
        self._is_draining = False
        self._is_over = False

    @property
    def has_more(self) -> bool:
        """True if deliveries wait, or the frames of one."""
        return bool(self._deliveries.waiting) or self._begun is not None

    def add(self, delivery: Delivery) -> None:
        """Let a delivery wait for its turn, and write it as soon as possible."""
        self._deliveries.add(delivery)
        self._soon_bytes += len(delivery.payload)
        if self._soon_bytes >= _SOON_BYTES:
            self.write()
        elif not self._is_due:
            # Frames of other keys in this turn of the loop go out in the same write.
            self._is_due = True
            self._loop.call_soon(self.write)

    def write(self) -> None:
        self._is_due = False
        self._soon_bytes = 0
        if self._is_over or self._is_draining:
            return
        if self._begun is not None:
            self._ask_again(self._begun)
        out: list[bytes] = []
        size = 0
        credit = self._credit
        while size < _WRITE_BYTES and credit.transfers < credit.transfer_limit:
            if self._frames:
                out.append(self._frames.popleft())
                size += len(out[-1])
                credit.transfers += 1
            elif not self._begin_next():
                break
        if not self._frames:
            self._begun = None
        if out:
            self._connection.write(b"".join(out))
        if not self._connection.is_drained or size >= _WRITE_BYTES:
            # Nothing waits in this process' buffers once it was cleared: a process that is frozen would send it
            # when it resumes.
            self._is_draining = True
            self._drain()

    def drained(self) -> None:
        """Continue to write: the written frames have left this process."""
        self._is_draining = False
        self.write()

    def stop(self) -> None:
        """Write nothing more: the link is over."""
        self._is_over = True
        self._frames.clear()
        self._begun = None

    def _begin_next(self) -> bool:
        """Begin the next delivery that may be sent; returns whether there is one."""
        credit, deliveries = self._credit, self._deliveries
        if credit.deliveries >= credit.delivery_limit or len(deliveries.unsettled) >= IN_FLIGHT:
            return False
        delivery = deliveries.begin_next()
        if delivery is None or delivery.id is None:
            return False
        credit.deliveries += 1
        self._begun = delivery
        largest = self._connection.max_frame_bytes
        self._frames.extend(frames.transfer(delivery.id, delivery.message_format, delivery.payload, largest))
        return True

    def _ask_again(self, delivery: Delivery) -> None:
        """Abort a delivery whose frames had to wait, if it is settled or given up, or may not be sent any more.

        The peer discards its part of an aborted delivery, and does not settle it.
        """
        if not delivery.result.done():
            try:
                delivery.may_send()
                return
            except SendError as error:
                delivery.fail(error)
        assert delivery.id is not None
        self._begun = None
        self._frames.clear()
        self._frames.append(frames.abort(delivery.id, delivery.message_format))
        self._deliveries.forget(delivery)
