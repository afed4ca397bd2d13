"""How large messages, batches and session states may be ("Service Bus quotas", learn.microsoft.com)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from outbox_relay.emulators.servicebus.entity_types import Sending

Tier = Literal["standard", "premium"]

_KIB = 1024
_PLAIN = Sending()


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest message and the largest batch that a link takes, and the largest state of a session, in bytes.

    `deletion` is how many messages one request may delete ("Batch delete messages", learn.microsoft.com). That of
    a session's state is in "Message sessions".
    """

    message: int
    batch: int
    session_state: int
    deletion: int

    @classmethod
    def of(cls, tier: Tier, sending: Sending = _PLAIN) -> Limits:
        """Return the limits of a tier; large messages are for Premium only."""
        if tier == "standard":
            return cls(256 * _KIB, 256 * _KIB, session_state=256 * _KIB, deletion=500)
        message = sending.max_message_bytes or 1024 * _KIB
        return cls(message, 1024 * _KIB, session_state=100 * 1024 * _KIB, deletion=4_000)

    def at_most(self, limit: int) -> Limits:
        """Return these limits, none of those of a link above that one."""
        return replace(self, message=min(self.message, limit), batch=min(self.batch, limit))
