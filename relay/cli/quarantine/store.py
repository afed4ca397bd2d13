"""The store of the quarantine for the duration of a command, and its errors as ServiceErrors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from relay.cli.sources import SourceKind, sql_feed
from relay.cosmos.containers import Containers
from relay.cosmos.items import CosmosItems
from relay.errors import ServiceError, StoreError
from relay.quarantine.items import Items
from relay.settings import Settings
from relay.sql.database import Database
from relay.sql.items import SqlItems


@asynccontextmanager
async def open_items(settings: Settings, source: SourceKind) -> AsyncIterator[Items]:
    """The store of the outbox. Nothing is connected until it is read or written."""
    items = items_of(settings, source)
    try:
        yield items
    finally:
        await items.close()


def items_of(settings: Settings, source: SourceKind) -> Items:
    """The store in the outbox's own database."""
    if source is SourceKind.SQL:
        return SqlItems(Database(sql_feed(settings), call_timeout_s=None))
    return CosmosItems(Containers(settings))


@contextmanager
def explaining_store_errors() -> Iterator[None]:
    """Raise StoreErrors as ServiceErrors."""
    try:
        yield
    except StoreError as error:
        raise ServiceError(str(error)) from error
