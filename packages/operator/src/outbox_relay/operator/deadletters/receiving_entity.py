"""Where events are received: a subscription of the topic, or the queue itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from relay.config.settings import Settings
from relay.core.errors import DestinationSettings


@dataclass(frozen=True, slots=True)
class ReceivingEntity:
    """A subscription of a topic, or a queue.

    Attributes:
        entity: The name of the topic or of the queue.
        subscription: The name of the subscription; None for a queue.
        named_by: Where the settings name the topic or the queue, for remedies.
    """

    entity: str
    subscription: str | None = None
    named_by: DestinationSettings = field(default_factory=DestinationSettings)

    @classmethod
    def of(cls, settings: Settings, name: str) -> ReceivingEntity:
        """Return the outlet of this name: a subscription's, or that of the queue, which has its own name alone."""
        subscription = None if settings.servicebus.is_queue else name
        return cls(settings.servicebus.entity, subscription, settings.servicebus.named_by)

    @property
    def name(self) -> str:
        """The subscription's name, or the queue's."""
        return self.subscription if self.subscription is not None else self.entity

    def receiver(self, client: ServiceBusClient, **options: Any) -> ServiceBusReceiver:
        """Return a receiver, which is not connected; `options` are those of the SDK."""
        if self.subscription is None:
            return client.get_queue_receiver(self.entity, **options)
        return client.get_subscription_receiver(self.entity, self.subscription, **options)

    def __str__(self) -> str:
        if self.subscription is None:
            return f"the queue '{self.entity}'"
        return f"the subscription '{self.subscription}' of the topic '{self.entity}'"
