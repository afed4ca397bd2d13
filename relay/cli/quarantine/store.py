"""The store of the quarantine for the duration of a command, and its errors as ServiceErrors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from relay.cosmos.containers import Containers
from relay.cosmos.items import CosmosItems
from relay.errors import ServiceError, StoreError
from relay.quarantine.items import Items
from relay.settings import Settings
from relay.sql.database import Database
from relay.sql.items import SqlItems


@asynccontextmanager
async def open_items(settings: Settings) -> AsyncIterator[Items]:
    """The store of the outbox that the settings name. Nothing is connected until it is read or written."""
    items = items_of(settings)
    try:
        yield items
    finally:
        await items.close()


def items_of(settings: Settings) -> Items:
    """The store in the outbox's own database. Where there is an outbox in both, it is Cosmos DB's."""
    if settings.cosmos is None and settings.sql is not None:
        return SqlItems(Database(settings.sql))
    return CosmosItems(Containers(settings))


@contextmanager
def explaining_store_errors() -> Iterator[None]:
    """Raise StoreErrors as ServiceErrors."""
    try:
        yield
    except StoreError as error:
        raise ServiceError(str(error)) from error
