"""What all connections share: the namespace, the key, the limits of the tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from outbox_emulators.servicebus.auth import SharedAccess
from outbox_emulators.servicebus.edges import Edges
from outbox_emulators.servicebus.ends import Entity
from outbox_emulators.servicebus.entities import Sending
from outbox_emulators.servicebus.errors import NotFound, ServiceBusError
from outbox_emulators.servicebus.fault_plans import Role
from outbox_emulators.servicebus.faults import Faults
from outbox_emulators.servicebus.namespace import Namespace
from outbox_emulators.servicebus.status import Status

if TYPE_CHECKING:
    from proton import Link

    from outbox_emulators.servicebus.connection import AmqpConnection

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

    def at_most(self, limit: int) -> Limits:
        """These limits, none of them above that one."""
        return Limits(min(self.message, limit), min(self.batch, limit))


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
    ) -> None:
        self.namespace = namespace
        self.access = access
        self.edges = edges
        self.tier = tier
        self.ack_delay_ms = ack_delay_ms
        self.connections: set[AmqpConnection] = set()
        self.faults = Faults(namespace.agenda)
        self._down_until_ms = 0

    def limits(self, sending: Sending) -> Limits:
        return Limits.of(self.tier, sending)

    def set_status(self, path: str, status: Status) -> None:
        """Enable or disable an entity and end the links that it now shuts out. Raises NotFound."""
        self.namespace.set_status(path, status)
        self.check_links()

    def restore_status(self, path: str, before: Status, *, disabled_as: Status) -> None:
        """Give an entity its status back, unless it was given another, or is gone, since it was disabled."""
        try:
            if self.namespace.status(path) is disabled_as:
                self.set_status(path, before)
        except NotFound:
            return

    def check_links(self) -> None:
        """End the links whose entity is gone or no longer takes or gives messages."""
        for connection in list(self.connections):
            connection.check_entities()

    def delete(self, entity: Entity) -> None:
        """Delete a queue, topic or subscription with its messages, and end the links it has."""
        self.namespace.remove(entity)
        entity.delete()
        self.check_links()
        entity.clear()

    def is_attached(self, path: str) -> bool:
        """Tell whether there is a link to a path or to something below it."""
        below = path.lower() + "/"
        return any(
            (endpoint.path.lower() + "/").startswith(below)
            for connection in self.connections
            for _, endpoint in connection.endpoints()
            if endpoint.path is not None
        )

    def cut_receivers(self, covers: Callable[[str], bool], *, reset: bool) -> int:
        """Cut the connections that receive from a path; returns how many."""
        found = [connection for connection in self.connections if connection.receives_from(covers)]
        for connection in found:
            connection.abort(reset=reset)
        return len(found)

    def detach_idle(self, covers: Callable[[str], bool], role: Role, error: ServiceBusError | None) -> int:
        """Detach the links of clients in a role that have nothing under way; returns how many."""
        found = self._idle(covers, role)
        for connection, link in found:
            connection.detach(link, error)
        return len(found)

    def close_idle(self, covers: Callable[[str], bool], role: Role, error: ServiceBusError | None) -> int:
        """Close the connections of such links; returns how many."""
        found = {connection for connection, _ in self._idle(covers, role)}
        for connection in found:
            connection.close(error)
        return len(found)

    def _idle(self, covers: Callable[[str], bool], role: Role) -> list[tuple[AmqpConnection, Link]]:
        return [
            (connection, link)
            for connection in self.connections
            for link, endpoint in connection.endpoints()
            if endpoint.role is role and endpoint.path and covers(endpoint.path) and not endpoint.is_busy
        ]

    @property
    def is_down(self) -> bool:
        """Whether new connections are to be cut."""
        return self.namespace.agenda.now() < self._down_until_ms

    def restart(self, *, keep: bool, for_ms: int) -> None:
        """Cut all connections, and new ones for a time; without `keep`, forget every message."""
        self._down_until_ms = self.namespace.agenda.now() + for_ms
        for connection in list(self.connections):
            connection.abort()
        if not keep:
            self.namespace.clear()
