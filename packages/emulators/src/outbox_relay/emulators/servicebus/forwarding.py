"""Forwarding: a queue or subscription whose messages, or dead letters, go on to another queue or topic.

("Chaining Service Bus entities with autoforwarding", learn.microsoft.com.)
"""

from __future__ import annotations

from typing import Protocol

from outbox_relay.emulators.servicebus.entry import Entry
from outbox_relay.emulators.servicebus.errors import TooManyHops
from outbox_relay.emulators.servicebus.message import Message, Trail

MOST_HOPS = 4


NO_FORWARDING_OF_SESSIONS = "Auto-forwarding is not supported for a queue or subscription that requires sessions."


class Forward(Protocol):
    """Sends messages on."""

    def __call__(self, destination: str, message: Message) -> None:
        """Send a message to the path of a queue or topic. Raises ServiceBusError if it cannot be sent."""


def on_its_way(entry: Entry, dead_letter_source: str | None) -> Message:
    """Return the message as it is sent on. Raises TooManyHops.

    `dead_letter_source` is the queue whose dead letters are forwarded, if they are.
    """
    before = entry.message.trail
    hops = 0 if before is None else before.hops
    if hops >= MOST_HOPS:
        raise TooManyHops(
            "The maximum number of allowed hops when forwarding between queues exceeded the limit. This value is "
            f"set to {MOST_HOPS}."
        )
    source = dead_letter_source or entry.dead_letter_source
    return entry.message.sent_on(Trail(hops + 1, entry.enqueued_sequence_number, source))
