"""The smoke test's events in the outbox container of Cosmos DB."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from relay.cosmos.containers import Containers, explaining
from relay.errors import ServiceError
from relay.outbox import CLEAN_UP_S
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy


class CosmosCanary:
    """See `outbox.Canary`."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def write(self, document: dict[str, Any], /) -> dict[str, Any]:
        """Create the document."""
        with explaining(self._container.id):
            return dict(await self._container.create_item(document))

    async def remove(self, document: dict[str, Any], /) -> str | None:
        """Delete the document, if it has not expired."""
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        identifier, partition_key = document["id"], document["partitionKey"]
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                with explaining(self._container.id):
                    await self._container.delete_item(identifier, partition_key=partition_key)
        except (ServiceError, TimeoutError) as error:
            if not isinstance(error.__cause__, CosmosResourceNotFoundError):
                return f"document {identifier!r} of {partition_key!r}"
        return None


@asynccontextmanager
async def open_canary(settings: Settings) -> AsyncIterator[CosmosCanary]:
    """The outbox container of the settings. Raises ServiceError where the account cannot be reached."""
    containers = Containers(settings)
    try:
        with explaining(settings.cosmos_container):
            container = await containers.open(settings.cosmos_container)
        yield CosmosCanary(container)
    finally:
        await containers.close()
