"""Session tokens: makes a client read its own commits, and the changes that its commits collided with.

Under session consistency, any replica that has reached the session token of a read may serve it
(https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency). azure-cosmos 4.17.1 keeps a
client's tokens, but not those in responses to transactional batches, and those in other error responses only if
the response names the container. A read after a commit may then be served by a replica that lags. The .NET SDK
keeps all of them (GatewayStoreModel in azure-cosmos-dotnet-v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from azure.core.utils import CaseInsensitiveDict
from azure.cosmos.aio import ContainerProxy

_CONTAINER_PATH = "x-ms-alt-content-path"


def keep_session_token(container: ContainerProxy, headers: Mapping[str, Any]) -> None:
    """Add the session token in response headers to the client's, so that its later reads see this state.

    Has no effect if the client keeps no tokens, as with other consistency levels.
    """
    # The SDK's own store of tokens, which is private. It merges tokens and sends them with every read of the
    # client, also with reads that do not go through this library.
    connection: Any = container.client_connection
    properties = connection._container_properties_cache.get(container.container_link)
    if connection.session is None or properties is None:
        return
    named = CaseInsensitiveDict(headers)
    named[_CONTAINER_PATH] = container.container_link
    connection.session.update_session(connection, {"_self": properties["_self"]}, named)
