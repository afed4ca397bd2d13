"""The Cosmos DB client, made from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.errors import UsageError
from relay.identity import by_identity
from relay.settings import Connection

if TYPE_CHECKING:
    from azure.cosmos.aio import CosmosClient

# Seconds to connect, and seconds between two parts of an answer: a connection that was cut silently is noticed and
# replaced while its call can still succeed. The service answers a page of a query after 5 s at most.
_CONNECT_TIMEOUT_S = 3
_READ_TIMEOUT_S = 6.0


def cosmos_client(connection: Connection | None) -> CosmosClient:
    """A client for the account. Nothing is connected yet.

    Raises:
        UsageError: The settings name no account: the outbox is in SQL.
    """
    if connection is None:
        raise UsageError("COSMOS is not set: this works on an outbox in Cosmos DB only")
    from azure.cosmos.aio import CosmosClient

    timeouts: dict[str, Any] = {"connection_timeout": _CONNECT_TIMEOUT_S, "read_timeout": _READ_TIMEOUT_S}
    if connection.connection_string is not None:
        return CosmosClient.from_connection_string(connection.connection_string, **timeouts)
    address, credential = by_identity(connection)
    return CosmosClient(address, credential=credential, **timeouts)
