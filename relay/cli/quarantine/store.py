"""The store of the quarantine for the duration of a command, and its errors as ServiceErrors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from relay.cosmos.containers import Containers
from relay.cosmos.items import CosmosItems
from relay.errors import ServiceError, StoreError
from relay.quarantine.items import Items
from relay.settings import Settings


@asynccontextmanager
async def open_items(settings: Settings) -> AsyncIterator[Items]:
    """The store that the settings name. Nothing is connected until it is read or written."""
    items = CosmosItems(Containers(settings))
    try:
        yield items
    finally:
        await items.close()


@contextmanager
def explaining_store_errors() -> Iterator[None]:
    """Raise StoreErrors as ServiceErrors."""
    try:
        yield
    except StoreError as error:
        raise ServiceError(str(error)) from error
