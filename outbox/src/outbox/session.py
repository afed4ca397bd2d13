"""What makes a client read its own writes, and what it was refused for.

Under session consistency the service answers a read from any replica that is as far as the session token of the
request (https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency). azure-cosmos keeps
the tokens of a client, but (4.17.1) takes over neither those of transactional batches nor those of refusals: a
read behind a commit may be answered by a replica that has not seen it. The .NET SDK takes over both: of refusals
those with 404, 409 and 412 (GatewayStoreModel in azure-cosmos-dotnet-v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from azure.core.exceptions import AzureError
from azure.core.utils import CaseInsensitiveDict
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

READ_SESSION_NOT_AVAILABLE = 1002

_TOKEN = "x-ms-session-token"
_CONTAINER_PATH = "x-ms-alt-content-path"
_RANGE = "x-ms-documentdb-partitionkeyrangeid"
_REFUSALS = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})


def take_over(container: ContainerProxy, headers: Mapping[str, Any]) -> None:
    """Have all later reads of this client see what an answer with these headers is about.

    It has no effect where the client keeps no tokens, as with other consistency levels.
    """
    # The SDK's own keeping of tokens: it merges them, and sends them with queries too, which no argument of its
    # public methods would do for reads that are not this library's.
    connection: Any = container.client_connection
    properties = connection._container_properties_cache.get(container.container_link)
    if connection.session is None or properties is None or _TOKEN not in headers:
        return
    told = CaseInsensitiveDict(headers)
    told[_CONTAINER_PATH] = container.container_link
    told.setdefault(_RANGE, str(told[_TOKEN]).partition(":")[0])
    connection.session.update_session(connection, {"_self": properties["_self"]}, told)


def take_over_refusal(container: ContainerProxy, error: AzureError) -> None:
    """The same where the answer was a refusal: it was decided on a version that a lagging replica may not have."""
    if isinstance(error, CosmosBatchOperationError) or (
        isinstance(error, CosmosHttpResponseError) and error.status_code in _REFUSALS and not _lags(error)
    ):
        take_over(container, error.headers)


def _lags(error: CosmosHttpResponseError) -> bool:
    return bool(error.sub_status == READ_SESSION_NOT_AVAILABLE)
