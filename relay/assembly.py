"""Puts the relay together for its source and its destination, as the settings say."""

from __future__ import annotations

from relay.cosmos.containers import Containers
from relay.cosmos.items import CosmosItems
from relay.cosmos.source import CosmosBatch, CosmosSource
from relay.pipeline import Relay
from relay.quarantine.quarantine import StoredQuarantine
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import Settings

CosmosRelay = Relay[CosmosBatch]


def assemble(settings: Settings) -> CosmosRelay:
    """A relay from Cosmos DB to Service Bus. Nothing is connected until the first event needs it."""
    containers = Containers(settings)
    return Relay(
        CosmosSource(settings.event_type, containers),
        ServiceBusPublisher.from_settings(settings, messages.encoder(settings.cloudevents_source)),
        StoredQuarantine(CosmosItems(containers)),
        duplicate_window_s=settings.duplicate_window_s,
        on_poison=settings.on_poison,
    )
