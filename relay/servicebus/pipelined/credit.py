"""What the peer has granted: deliveries on the link, and frames in the session.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, parts 2.5.6 and 2.6.7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SERIAL = 2**32


class Credit:
    """Counts of what was sent, and their limits. The peer's serials of 32 bits are unwrapped to counts.

    A delivery may begin while `deliveries < delivery_limit`, and a frame may leave while
    `transfers < transfer_limit`: the link compares them itself, for each frame.

    Attributes:
        deliveries: The link's delivery-count: deliveries that were begun, and credit that a drain took back.
        transfers: Transfer frames that were written.
        next_incoming_id: The number of the peer's next transfer frame, by which it is answered.
    """

    __slots__ = ("deliveries", "delivery_limit", "next_incoming_id", "transfer_limit", "transfers")

    def __init__(self) -> None:
        self.deliveries = 0
        self.delivery_limit = 0
        self.transfers = 0
        self.transfer_limit = 0
        self.next_incoming_id = 0

    def begun(self, next_outgoing_id: int, window: int) -> None:
        """The peer has begun the session, with room for `window` frames.

        Raises:
            TypeError: That is no number.
        """
        if not isinstance(window, int):
            raise TypeError(f"the session's window is {window!r}")
        self.next_incoming_id = next_outgoing_id
        self.transfer_limit = window

    def session_flow(self, fields: Sequence[Any]) -> None:
        """The fields of a flow that concern the session."""
        next_incoming_id, window, self.next_incoming_id = fields[:3]
        # The peer counts from what it has received; before our first frame, it may not know the id.
        self.transfer_limit = unwrapped(next_incoming_id or 0, self.transfers) + window

    def link_flow(self, fields: Sequence[Any]) -> None:
        """Those that concern the link."""
        count, credit = fields[5:7]
        self.delivery_limit = unwrapped(count or 0, self.deliveries) + (credit or 0)

    def drained(self) -> None:
        """The peer takes back the credit that is not used."""
        self.deliveries = max(self.deliveries, self.delivery_limit)

    @property
    def left(self) -> int:
        """Deliveries that may begin."""
        return max(0, self.delivery_limit - self.deliveries)


def unwrapped(serial: int, near: int) -> int:
    """Unwrap a 32-bit serial number to the count closest to `near`."""
    return near + (serial - near + SERIAL // 2) % SERIAL - SERIAL // 2
