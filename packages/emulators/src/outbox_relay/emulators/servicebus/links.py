"""The broker's end of a link: what all kinds of links have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proton import Delivery, Link

from outbox_relay.emulators.servicebus.authorization import Right
from outbox_relay.emulators.servicebus.link_faults import LinkFaults
from outbox_relay.emulators.servicebus.outgoing import CDelivery
from outbox_relay.emulators.servicebus.role import Role

DETACHED = "The link was detached by the broker."


class LinkEndpoint:
    """The broker's end of one link.

    `path` is what its token must cover, with one of the rights `needed`; `node` is that of a link for requests;
    `role` is the client's where the link carries messages of an entity.
    """

    path: str | None = None
    node: str | None = None
    needed = Right.ANY
    role: Role | None = None
    faults: LinkFaults | None = None

    def __init__(self, link: Link) -> None:
        self.link = link
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self.active_s = self._clock()

    @property
    def is_busy(self) -> bool:
        """True while something is under way on the link, so that it does not idle."""
        return False

    def measure_by(self, clock: Callable[[], float]) -> None:
        """Measure by another clock, in seconds, when the link was last active, which is now."""
        self._clock = clock
        self.touch()

    def touch(self) -> None:
        """Note that the link carries something now, in `active_s`."""
        self.active_s = self._clock()

    def check(self) -> None:
        """Raise the ServiceBusError that forbids the link in the present state of its entity."""

    def open(self) -> None:
        """Answer the client's attach."""
        self.link.source.copy(self.link.remote_source)
        self.link.target.copy(self.link.remote_target)
        self.link.snd_settle_mode = self.link.remote_snd_settle_mode
        self.link.rcv_settle_mode = self.link.remote_rcv_settle_mode
        self.link.open()

    def pump(self) -> None:
        """Send what there is to send: the client has granted credit, or the socket is writable again."""

    def on_delivery(self, delivery: Delivery, message_format: int | None) -> None:
        """Handle a delivery to the broker of which a part has arrived, or whose state has changed."""

    def on_update(self, delivery: CDelivery) -> None:
        """Handle a delivery to the client whose state has changed. What is answered is sent without a flush."""

    def closed(self) -> None:
        """Release what the link holds, however it has ended."""
