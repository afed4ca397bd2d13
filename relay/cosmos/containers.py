"""The containers of the outbox's database, over one client that is made when the first of them is needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from relay.cosmos.client import cosmos_client
from relay.cosmos.leases import Positions, read_positions
from relay.errors import LeaseError, first_line
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, CosmosClient


class Containers:
    """One for a process. Nothing is connected until a container is asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._client: CosmosClient | None = None

    async def open(self, name: str) -> ContainerProxy:
        """The container of this name. Raises AzureError, or OSError, where the account cannot be reached."""
        async with self._opening:
            if self._client is None:
                client = cosmos_client(self._settings.cosmos)
                try:
                    await client.__aenter__()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client.get_database_client(self._settings.cosmos_database).get_container_client(name)

    @property
    def quarantine_name(self) -> str:
        """The name of the quarantine container."""
        return self._settings.cosmos_quarantine_container

    async def quarantine(self) -> ContainerProxy:
        """The quarantine container. Raises AzureError, or OSError, where the account cannot be reached."""
        return await self.open(self.quarantine_name)

    async def positions(self) -> Positions:
        """How far the relay's own leases have come. Raises LeaseError."""
        settings = self._settings
        try:
            leases = await self.open(settings.cosmos_lease_container)
            return await read_positions(leases, await self.open(settings.cosmos_container), own_only=True)
        except (AzureError, OSError) as error:
            raise LeaseError(
                "old events must be compared with the leases, but the container "
                f"'{settings.cosmos_lease_container}' could not be read: {first_line(error)} "
                "Check that the app may read it and the outbox container."
            ) from error

    async def close(self) -> None:
        """Close the client, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
