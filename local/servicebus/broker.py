"""What all connections share: the namespace, the key, the limits of the tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .auth import SharedAccess
from .entities import Sending
from .namespace import Namespace
from .topic import Status

if TYPE_CHECKING:
    from .connection import AmqpConnection

Tier = Literal["standard", "premium"]

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a link takes, in bytes: one message, and one batch."""

    message: int
    batch: int

    @classmethod
    def of(cls, tier: Tier, sending: Sending) -> Limits:
        """The limits of a tier ("Service Bus quotas", learn.microsoft.com); large messages only on Premium."""
        if tier == "standard":
            return cls(256 * _KIB, 256 * _KIB)
        return cls(sending.max_message_bytes or 1024 * _KIB, 1024 * _KIB)


class Broker:
    """The namespace and its connections."""

    def __init__(
        self, namespace: Namespace, access: SharedAccess, *, tier: Tier = "standard", ack_delay_ms: int = 0
    ) -> None:
        self.namespace = namespace
        self.access = access
        self.tier = tier
        self.ack_delay_ms = ack_delay_ms
        self.connections: set[AmqpConnection] = set()

    def limits(self, sending: Sending) -> Limits:
        return Limits.of(self.tier, sending)

    def set_status(self, path: str, status: Status) -> None:
        """Enable or disable an entity and end the links that it now shuts out. Raises NotFound."""
        self.namespace.set_status(path, status)
        for connection in list(self.connections):
            connection.check_entities()
