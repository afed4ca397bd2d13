"""What makes a client read what its commits wrote, and what they were refused for.

Under session consistency the service answers a read from any replica that is as far as the session token of the
request (https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency). azure-cosmos keeps
the tokens of a client, but (4.17.1) not those that transactional batches are answered with, be they carried out or
refused, and those of other refusals only where the answer names the container: a read behind a commit may be
answered by a replica that has not seen it. The .NET SDK keeps all of these (GatewayStoreModel in
azure-cosmos-dotnet-v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from azure.core.utils import CaseInsensitiveDict
from azure.cosmos.aio import ContainerProxy

_CONTAINER_PATH = "x-ms-alt-content-path"


def take_over(container: ContainerProxy, headers: Mapping[str, Any]) -> None:
    """Have all later reads of this client see what an answer with these headers is about.

    It has no effect where the client keeps no tokens, as with other consistency levels.
    """
    # The SDK's own keeping of tokens: it merges them, and sends them with queries too, which no argument of its
    # public methods would do for reads that are not this library's.
    connection: Any = container.client_connection
    properties = connection._container_properties_cache.get(container.container_link)
    if connection.session is None or properties is None:
        return
    told = CaseInsensitiveDict(headers)
    told[_CONTAINER_PATH] = container.container_link
    connection.session.update_session(connection, {"_self": properties["_self"]}, told)
