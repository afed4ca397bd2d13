"""The credit granted by the peer: deliveries on the link, and frames in the session.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, parts 2.5.6 and 2.6.7
"""

from __future__ import annotations

from relay.servicebus.pipelined.frames import Begin, Flow

SERIAL = 2**32


class Credit:
    """Counts of deliveries and frames sent, and their limits. The peer's 32-bit serials are unwrapped to counts.

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

    def begun(self, begin: Begin) -> None:
        """Note that the peer has begun the session, with room for some frames.

        Raises TypeError if it names no number.
        """
        if not isinstance(begin.incoming_window, int):
            raise TypeError(f"the session's window is {begin.incoming_window!r}")
        self.next_incoming_id = begin.next_outgoing_id
        self.transfer_limit = begin.incoming_window

    def session_flow(self, flow: Flow) -> None:
        """Apply a flow's state of the session."""
        self.next_incoming_id = flow.next_outgoing_id
        # The peer counts from what it has received; before our first frame, it may not know the id.
        self.transfer_limit = unwrapped(flow.next_incoming_id or 0, self.transfers) + flow.incoming_window

    def link_flow(self, flow: Flow) -> None:
        """Apply its state of the link."""
        self.delivery_limit = unwrapped(flow.delivery_count or 0, self.deliveries) + (flow.link_credit or 0)

    def drained(self) -> None:
        """Note that the peer takes back the credit that is not used."""
        self.deliveries = max(self.deliveries, self.delivery_limit)

    @property
    def left(self) -> int:
        """Deliveries that may begin."""
        return max(0, self.delivery_limit - self.deliveries)


def unwrapped(serial: int, near: int) -> int:
    """Unwrap a 32-bit serial number to the count closest to `near`."""
    return near + (serial - near + SERIAL // 2) % SERIAL - SERIAL // 2
