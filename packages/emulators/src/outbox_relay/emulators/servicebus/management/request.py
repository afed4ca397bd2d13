"""A request to the management node of an entity, and what its operations have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proton import UNDESCRIBED, Array

from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid, NotAllowed, NotFound
from outbox_relay.emulators.servicebus.queue import MessageQueue
from outbox_relay.emulators.servicebus.session_consuming import SessionEndpoint
from outbox_relay.emulators.servicebus.session_queue import SessionQueue
from outbox_relay.emulators.servicebus.topic import Subscription

Result = dict[str, Any] | None
"""The body of the answer; None answers that there is nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is the entity's."""

    connection: AmqpConnection
    path: str
    body: Mapping[str, Any]

    @property
    def broker(self) -> Broker:
        return self.connection.broker

    def queue(self) -> MessageQueue:
        """Return the messages of the entity. Raises NotFound, EntityDisabled or NotAllowed."""
        source = self.broker.namespace.source(self.path)
        source.check("browser")
        return source.queue

    def sessions(self) -> SessionQueue:
        """Return the messages of an entity that requires sessions. Raises NotAllowed, and as `queue` does."""
        queue = self.queue()
        if not isinstance(queue, SessionQueue):
            raise NotAllowed(f"The entity '{self.path}' does not require sessions.")
        return queue

    def subscription(self) -> Subscription:
        """Return the subscription. Raises NotAllowed if the entity is none."""
        try:
            return self.broker.namespace.subscription(self.path)
        except NotFound:
            raise NotAllowed(f"Only a subscription has rules, and '{self.path}' is none.") from None

    def owned(self) -> list[SessionEndpoint]:
        """Return the receivers of sessions on the request's connection."""
        return [each for each in self.connection.links.endpoints() if isinstance(each, SessionEndpoint)]

    def page(self) -> slice:
        """Return which part of a list is asked for. Raises ArgumentInvalid."""
        skip, top = int(self.body["skip"]), int(self.body["top"])
        if skip < 0 or top < 0:
            raise ArgumentInvalid("skip and top must not be negative.")
        return slice(skip, skip + top)


def array(kind: int, values: Iterable[Any]) -> Array:
    """Make an AMQP array."""
    # Proton's annotation omits the constant for an array without a descriptor.
    return Array(UNDESCRIBED, kind, *values)  # type: ignore[arg-type]


def elements(value: Any) -> Iterable[Any]:
    """Return what an AMQP array or list holds."""
    return value.elements if isinstance(value, Array) else value
