"""The shared state of all connections: namespace and key, limits of the tier, the connections, the faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from outbox_relay.emulators.faults import Faults
from outbox_relay.emulators.servicebus.auth import SharedAccess
from outbox_relay.emulators.servicebus.connections import Connections
from outbox_relay.emulators.servicebus.edges import Edges
from outbox_relay.emulators.servicebus.ends import Entity
from outbox_relay.emulators.servicebus.entity_types import Sending, Status
from outbox_relay.emulators.servicebus.errors import NotFound
from outbox_relay.emulators.servicebus.fault_plans import FaultPlan
from outbox_relay.emulators.servicebus.namespace import Namespace

Tier = Literal["standard", "premium"]

_KIB = 1024
_PLAIN = Sending()


class Broker:
    """The namespace and its connections."""

    def __init__(
        self,
        namespace: Namespace,
        access: SharedAccess,
        edges: Edges,
        *,
        tier: Tier = "standard",
        ack_delay_ms: int = 0,
        idle_clock: Callable[[], float] | None = None,
    ) -> None:
        self.namespace = namespace
        self.access = access
        self.edges = edges
        self.tier = tier
        self.ack_delay_ms = ack_delay_ms
        self.idle_clock = idle_clock
        self.connections = Connections()
        self.faults = Faults[FaultPlan](namespace.timers.now, namespace.timers.call_at)
        self._down_until_ms = 0

    def limits(self, sending: Sending) -> Limits:
        return Limits.of(self.tier, sending)

    def set_status(self, path: str, status: Status) -> None:
        """Enable or disable an entity and detach the links that it now shuts out. Raises NotFound."""
        self.namespace.set_status(path, status)
        self.connections.check_entities()

    def restore_status(self, path: str, before: Status, *, disabled_as: Status) -> None:
        """Restore the status of an entity, unless it was changed or the entity deleted since it was disabled."""
        try:
            if self.namespace.status(path) is disabled_as:
                self.set_status(path, before)
        except NotFound:
            return

    def delete(self, entity: Entity) -> None:
        """Delete a queue, topic or subscription with its messages, and detach the links it has."""
        self.namespace.remove(entity)
        entity.delete()
        self.connections.check_entities()
        entity.clear()

    @property
    def is_down(self) -> bool:
        """True while new connections are to be cut."""
        return self.namespace.timers.now() < self._down_until_ms

    def restart(self, *, keep: bool, for_ms: int) -> None:
        """Cut all connections, and new ones for a time; without `keep`, delete every message."""
        self._down_until_ms = self.namespace.timers.now() + for_ms
        self.connections.cut_all()
        if not keep:
            self.namespace.clear()


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest message and the largest batch that a link takes, and the largest state of a session, in bytes.

    `deletion` is how many messages one request may delete ("Batch delete messages", learn.microsoft.com). That of
    a session's state is in "Message sessions", the others in "Service Bus quotas" (learn.microsoft.com).
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
