"""Cosmos DB clients for the connections that bindings name."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import AsyncExitStack

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from azure.cosmos.aio import CosmosClient

from outbox_relay.emulators.functions.errors import HostError, UnableToStart, describe, is_transient
from outbox_relay.emulators.functions.settings import Connection, Settings
from outbox_relay.emulators.functions.transport import client_options

_MANAGED_IDENTITY = "managedidentity"


class Connections:
    """One client for each connection, opened at its first use and closed with the stack."""

    def __init__(self, settings: Settings, stack: AsyncExitStack, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._stopping = stopping
        self._stack = stack
        self._clients: dict[str, CosmosClient] = {}

    async def client(self, name: str) -> CosmosClient:
        """Return the client for the connection of that name.

        Raises HostError if it is not set, UnableToStart if it is refused, AzureError if it may work later.
        """
        if name not in self._clients:
            client = await self._client(name, self._settings.connection(name))
            try:
                self._clients[name] = await self._stack.enter_async_context(client)
            except (AzureError, ValueError) as error:
                await client.close()
                if isinstance(error, AzureError) and is_transient(error):
                    raise
                raise UnableToStart(f"the connection {name!r} does not work: {describe(error)}") from error
        return self._clients[name]

    async def _client(self, name: str, connection: Connection) -> CosmosClient:
        options = client_options(self._stopping)
        try:
            if connection.connection_string is not None:
                return CosmosClient.from_connection_string(connection.connection_string, **options)
            assert connection.account_endpoint is not None
            credential = await self._credential(connection)
            return CosmosClient(connection.account_endpoint, credential=credential, **options)
        except (KeyError, ValueError, TypeError) as error:
            raise HostError(
                f"the connection {name!r} is not usable ({error}): it must read "
                "AccountEndpoint=https://…;AccountKey=…;, or be an endpoint's address"
            ) from error

    async def _credential(self, connection: Connection) -> AsyncTokenCredential:
        # azure-identity is slow to import, and an extra: connection strings do not need it.
        try:
            from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential
        except ModuleNotFoundError as error:
            raise HostError(
                f"{error}. Run {shlex.quote(sys.executable)} -m pip install "
                "'outbox-relay-emulators[identity]', or set a connection string"
            ) from error

        if (connection.credential or "").casefold() == _MANAGED_IDENTITY:
            managed = ManagedIdentityCredential(client_id=connection.client_id)
            return await self._stack.enter_async_context(managed)
        return await self._stack.enter_async_context(DefaultAzureCredential())
