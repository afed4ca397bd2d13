"""The Cosmos DB client, made from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.errors import UsageError
from relay.identity import by_identity
from relay.settings import Connection

if TYPE_CHECKING:
    from azure.cosmos.aio import CosmosClient


def cosmos_client(connection: Connection | None) -> CosmosClient:
    """A client for the account. Nothing is connected yet.

    Raises:
        UsageError: The settings name no account: the outbox is in SQL.
    """
    if connection is None:
        raise UsageError("COSMOS is not set: this works on an outbox in Cosmos DB only")
    from azure.cosmos.aio import CosmosClient

    if connection.connection_string is not None:
        return CosmosClient.from_connection_string(connection.connection_string)
    address, credential = by_identity(connection)
    return CosmosClient(address, credential=credential)
