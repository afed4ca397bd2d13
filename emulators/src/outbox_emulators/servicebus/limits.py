"""How large messages and batches may be ("Service Bus quotas", learn.microsoft.com)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outbox_emulators.servicebus.entity_types import Sending

Tier = Literal["standard", "premium"]

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest message and the largest batch that a link takes, in bytes."""

    message: int
    batch: int

    @classmethod
    def of(cls, tier: Tier, sending: Sending) -> Limits:
        """Return the limits of a tier; large messages are for Premium only."""
        if tier == "standard":
            return cls(256 * _KIB, 256 * _KIB)
        return cls(sending.max_message_bytes or 1024 * _KIB, 1024 * _KIB)

    def at_most(self, limit: int) -> Limits:
        """Return these limits, none of them above that one."""
        return Limits(min(self.message, limit), min(self.batch, limit))
