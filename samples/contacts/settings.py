"""Connections to Azure, with the setting names that the Functions host and the relay use.

https://learn.microsoft.com/azure/azure-functions/functions-reference#configure-an-identity-based-connection
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from azure.cosmos.aio import ContainerProxy, CosmosClient

if TYPE_CHECKING:
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential
    from azure.servicebus.aio import ServiceBusClient


class SettingMissing(Exception):
    """A connection has no setting. The message names the setting."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection string, which is a secret, or an address to use with an identity."""

    connection_string: str | None
    address: str
    managed: bool
    client_id: str | None

    @classmethod
    def named(cls, name: str, address: str, environment: Mapping[str, str]) -> Self:
        """Return the connection `name`, such as COSMOS. `address` is the suffix of the setting with the address.

        Raises:
            SettingMissing: Neither a connection string nor an address is set.
        """
        connection_string, host = environment.get(name), environment.get(f"{name}__{address}", "")
        if not connection_string and not host:
            raise SettingMissing(f"Set {name} to a connection string, or {name}__{address} to use an identity.")
        return cls(
            connection_string=connection_string or None,
            address=host,
            managed=environment.get(f"{name}__credential", "").lower() == "managedidentity",
            client_id=environment.get(f"{name}__clientId") or None,
        )

    def credential(self) -> DefaultAzureCredential | ManagedIdentityCredential:
        from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

        if self.managed:
            return ManagedIdentityCredential(client_id=self.client_id)
        return DefaultAzureCredential(managed_identity_client_id=self.client_id)


@asynccontextmanager
async def open_container(environment: Mapping[str, str] = os.environ) -> AsyncGenerator[ContainerProxy]:
    """Open the container of contacts and events, from COSMOS, COSMOS_DATABASE and COSMOS_CONTAINER.

    Raises:
        SettingMissing: COSMOS is not set.
    """
    connection = Connection.named("COSMOS", "accountEndpoint", environment)
    database = environment.get("COSMOS_DATABASE") or "outbox"
    container = environment.get("COSMOS_CONTAINER") or "data"
    async with AsyncExitStack() as stack:
        if connection.connection_string is not None:
            client = CosmosClient.from_connection_string(connection.connection_string)
        else:
            credential = connection.credential()
            await stack.enter_async_context(credential)
            client = CosmosClient(connection.address, credential)
        stack.push_async_callback(client.close)
        # This sends a request, so that a wrong setting shows when the service starts.
        await stack.enter_async_context(client)
        yield client.get_database_client(database).get_container_client(container)


@asynccontextmanager
async def open_servicebus(environment: Mapping[str, str] = os.environ) -> AsyncGenerator[ServiceBusClient]:
    """Open a client for session receivers, from SERVICEBUS.

    Raises:
        SettingMissing: SERVICEBUS is not set.
    """
    from outbox_relay import inbox

    connection = Connection.named("SERVICEBUS", "fullyQualifiedNamespace", environment)
    async with AsyncExitStack() as stack:
        if connection.connection_string is not None:
            client = inbox.connect(connection.connection_string)
        else:
            credential = connection.credential()
            await stack.enter_async_context(credential)
            client = inbox.connect(connection.address, credential)
        yield await stack.enter_async_context(client)
