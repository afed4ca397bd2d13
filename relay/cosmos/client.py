"""The Cosmos DB client, made from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.identity import by_identity
from relay.settings import Connection

if TYPE_CHECKING:
    from azure.cosmos.aio import CosmosClient


def cosmos_client(connection: Connection) -> CosmosClient:
    """A client for the account. Nothing is connected yet."""
    from azure.cosmos.aio import CosmosClient

    if connection.connection_string is not None:
        return CosmosClient.from_connection_string(connection.connection_string)
    address, credential = by_identity(connection)
    return CosmosClient(address, credential=credential)
