"""Makes an observer of what the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from relay.console.observer import Observer
from relay.console.ports import Hosts, Outbox, Topic
from relay.console.servicebus import ServiceBusTopic
from relay.cosmos.containers import Containers
from relay.cosmos.items import CosmosItems
from relay.cosmos.reader import CosmosOutbox
from relay.errors import UsageError
from relay.quarantine.items import Items
from relay.settings import Settings
from relay.sql.database import Database
from relay.sql.items import SqlItems
from relay.sql.reader import SqlOutbox


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
    outbox, items = _outbox(settings, from_beginning)
    topic = topic or ServiceBusTopic(settings, environment)
    async with Observer(outbox, topic, items, hosts, always=always) as observer:
        yield observer


def _outbox(settings: Settings, from_beginning: bool) -> tuple[Outbox, Items]:
    if settings.sql is None:
        return CosmosOutbox(settings, from_beginning=from_beginning), CosmosItems(Containers(settings))
    if settings.cosmos is not None:
        raise UsageError("COSMOS and SQL are both set: a console shows one outbox. Add --source cosmos or sql")
    outbox = SqlOutbox(settings.sql, settings.event_type, from_beginning=from_beginning)
    return outbox, SqlItems(Database(settings.sql, call_timeout_s=None))
