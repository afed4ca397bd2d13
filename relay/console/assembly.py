"""Makes an observer of what the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from relay.assembly import open_outbox, open_store
from relay.console.observer import Observer
from relay.console.ports import Hosts, Topic
from relay.console.servicebus import ServiceBusTopic
from relay.settings import Settings


@asynccontextmanager
async def open_view(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    from_beginning: bool,
    hosts: Hosts | None = None,
    topic: Topic | None = None,
    always: bool = False,
) -> AsyncIterator[Observer]:
    """An observer of the settings' outbox and topic. Nothing is connected until somebody looks.

    Args:
        settings: With one outbox; of both, leave one out: `replace(settings, sql=None)`.
        environment: Where `SERVICEBUS_ADMIN` stands, if the management endpoint has an address of its own.
        from_beginning: Whether to read every event that the outbox has, or those that the relay has not passed.
        hosts: Where the relay's processes can be asked.
        topic: To be used instead of the settings' topic.
        always: Look also while nobody watches.

    Raises:
        UsageError: The settings have both outboxes.
    """
    outbox, items = open_outbox(settings, from_beginning=from_beginning), open_store(settings)
    topic = topic or ServiceBusTopic(settings, environment)
    async with Observer(outbox, topic, items, hosts, always=always) as observer:
        yield observer
