"""Connections to Cosmos DB for the duration of a command, and errors of the SDK as ServiceErrors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from relay.cosmos.client import connected
from relay.cosmos.containers import explaining
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, DatabaseProxy


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[DatabaseProxy]:
    """The settings' database.

    Raises:
        ServiceError: The account cannot be reached, or refuses.
    """
    async with AsyncExitStack() as stack:
        with explaining(settings.cosmos_container):
            client = await stack.enter_async_context(connected(settings.cosmos))
        yield client.get_database_client(settings.cosmos_database)


@asynccontextmanager
async def open_container(settings: Settings, name: str) -> AsyncIterator[ContainerProxy]:
    """The container `name` of the settings' database.

    Raises:
        ServiceError: The account cannot be reached, or refuses.
    """
    async with open_database(settings) as database:
        yield database.get_container_client(name)
