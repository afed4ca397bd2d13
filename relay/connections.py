"""The SDK clients, made from the settings. azure-identity is imported only where there is no connection string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus.aio import ServiceBusClient

from relay.settings import Connection, Identity

if TYPE_CHECKING:
    from azure.cosmos.aio import CosmosClient
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential


def servicebus_client(connection: Connection) -> ServiceBusClient:
    """A client for the namespace. Nothing is connected yet."""
    if connection.connection_string is not None:
        return ServiceBusClient.from_connection_string(connection.connection_string)
    address, identity = _by_identity(connection)
    return ServiceBusClient(address, _credential(identity))


def cosmos_client(connection: Connection) -> CosmosClient:
    """A client for the account. Nothing is connected yet."""
    from azure.cosmos.aio import CosmosClient

    if connection.connection_string is not None:
        return CosmosClient.from_connection_string(connection.connection_string)
    address, identity = _by_identity(connection)
    return CosmosClient(address, credential=_credential(identity))


def _by_identity(connection: Connection) -> tuple[str, Identity]:
    if connection.address is None or connection.identity is None:
        raise ValueError("a connection has either a connection string, or an address and an identity")
    return connection.address, connection.identity


def _credential(identity: Identity) -> DefaultAzureCredential | ManagedIdentityCredential:
    from azure.identity.aio import (
        DefaultAzureCredential,
        ManagedIdentityCredential,
    )

    if identity.managed:
        return ManagedIdentityCredential(client_id=identity.client_id)
    return DefaultAzureCredential(managed_identity_client_id=identity.client_id)
