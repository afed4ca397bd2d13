"""Connections to Cosmos DB for the duration of a command, and errors of the SDK as ServiceErrors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from relay.cosmos.client import cosmos_client
from relay.errors import ServiceError, first_line
from relay.settings import Connection, Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy


@asynccontextmanager
async def connected(connection: Connection | None) -> AsyncIterator[CosmosClient]:
    """A client that has connected to its account. The SDK's own context manager leaves connections open on
    failure."""
    client = cosmos_client(connection)
    try:
        await client.__aenter__()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[DatabaseProxy]:
    """The settings' database.

    Raises:
        ServiceError: The account cannot be reached, or refuses.
    """
    async with AsyncExitStack() as stack:
        with explaining_service_errors(settings.cosmos_container):
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


@contextmanager
def explaining_service_errors(container: str) -> Iterator[None]:
    """Raise errors of the SDK as a ServiceError that names what to check."""
    try:
        yield
    except (AzureError, OSError) as error:
        raise ServiceError(
            f"the container '{container}' cannot be read or written: {first_line(error)} Check COSMOS, "
            "COSMOS_DATABASE, the name of the container, and the rights of this identity."
        ) from error
