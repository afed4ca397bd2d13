"""What every link has in common, as the broker's end of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from proton import Delivery, Link

from outbox_emulators.servicebus.fault_plans import Role
from outbox_emulators.servicebus.strikes import LinkStrikes

if TYPE_CHECKING:
    from outbox_emulators.servicebus.connection import AmqpConnection


DETACHED = "The link was detached by the broker."


class LinkEndpoint:
    """One link, as the broker's end of it.

    `path` is what its token must cover; `role` is the client's where the link carries messages of an entity.
    """

    path: str | None = None
    role: Role | None = None
    strikes: LinkStrikes | None = None

    def __init__(self, connection: AmqpConnection, link: Link) -> None:
        self.connection = connection
        self.link = link
        self.active_s = 0.0
        self.touch()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way on the link, so that it does not idle."""
        return False

    def touch(self) -> None:
        """The link carries something, now. `active_s` is when it last did, in seconds of the loop's clock."""
        self.active_s = self.connection.active_s = asyncio.get_running_loop().time()

    def check(self) -> None:
        """Raise what forbids the link as its entity is now."""

    def open(self) -> None:
        """Answer the client's attach."""
        self.link.source.copy(self.link.remote_source)
        self.link.target.copy(self.link.remote_target)
        self.link.snd_settle_mode = self.link.remote_snd_settle_mode
        self.link.rcv_settle_mode = self.link.remote_rcv_settle_mode
        self.link.open()

    def pump(self) -> None:
        """Send what there is to send: credit came, or the socket takes more."""

    def on_delivery(self, delivery: Delivery, message_format: int | None) -> None:
        """Something of a delivery has arrived or changed."""

    def closed(self) -> None:
        """The link is gone, by whichever way."""
