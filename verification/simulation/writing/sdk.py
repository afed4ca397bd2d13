"""The part of azure-cosmos that `outbox` uses: the container of one client, whose answers may be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ServiceResponseError
from azure.core.utils import CaseInsensitiveDict
from azure.cosmos import CosmosDict, CosmosList
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from outbox_relay.outbox.batch import SdkOperation
from verification.simulation.channel import LineError, RpcChannel
from verification.simulation.writing.documents import Document, Documents, Operation, StatusError

T = TypeVar("T")

LINK = "dbs/database/colls/container"
_TOKEN = "x-ms-session-token"
# How often the SDK (4.17.1) sends a request again, after the connection broke or the service was not available.
_RETRIES = 2
# Their constructors have no types.
_HTTP_ERROR: Any = CosmosHttpResponseError
_BATCH_ERROR: Any = CosmosBatchOperationError
_ERRORS: dict[int, Any] = {
    404: CosmosResourceNotFoundError,
    409: CosmosResourceExistsError,
    412: CosmosAccessConditionFailedError,
}


class Session:
    """The session tokens that a client keeps. There is one range of keys here, so it is one number."""

    def __init__(self) -> None:
        self.token = 0

    def update_session(self, connection: Any, result: Mapping[str, Any], headers: Mapping[str, Any]) -> None:
        """Update the token as the SDK's own method does, which `outbox_relay.outbox.execution` calls."""
        self.token = max(self.token, int(headers.get(_TOKEN, 0)))


class SimulatedContainer:
    """A `ContainerProxy` of one client.

    Attributes:
        keeps_tokens: Whether the account has session consistency. Otherwise, it has eventual consistency.
    """

    container_link = LINK

    def __init__(self, line: RpcChannel, documents: Documents, *, keeps_tokens: bool) -> None:
        self.keeps_tokens = keeps_tokens
        self._line = line
        self._documents = documents
        self._session = Session()
        self.client_connection = SimpleNamespace(
            session=self._session if keeps_tokens else None,
            _container_properties_cache={LINK: {"_self": "self"}},
        )

    async def execute_item_batch(self, batch_operations: Sequence[SdkOperation], partition_key: str) -> CosmosList:
        """Execute a transactional batch. The SDK does not keep the session token of its answer."""
        operations = list(map(_operation, batch_operations))
        try:
            etags, token = await self._send(partial(self._documents.batch, partition_key, operations))
        except StatusError as error:
            raise _failed_batch(error, len(operations)) from error
        return CosmosList([{"eTag": etag} for etag in etags], response_headers=_headers(token))

    async def read_item(self, item: str, partition_key: str, **condition: Any) -> CosmosDict:
        """Read a document; an empty one if `condition` is not met."""
        try:
            # The token is that of the moment at which the request is sent.
            read = partial(self._documents.read, partition_key, item, self._session.token)
            document, token = await self._send(read)
        except StatusError as error:
            raise _failed(error) from error
        if self.keeps_tokens:
            self._session.token = max(self._session.token, token)
        if condition and condition["etag"] == document["_etag"]:
            document = {}
        return CosmosDict(document, response_headers=_headers(token))

    async def replace_item(
        self, item: str, body: Document, *, etag: str, match_condition: MatchConditions
    ) -> CosmosDict:
        """Replace a document if it has this ETag, which none has that `outbox` asks for."""
        operation = Operation("replace", body, etag)
        try:
            await self._send(partial(self._documents.replace, body["partitionKey"], operation))
        except StatusError as error:
            raise _failed(error) from error
        return CosmosDict(body, response_headers=_headers(0))

    async def _send(self, operation: Callable[[], T]) -> T:
        entropy = self._line.world.entropy
        for retries_left in reversed(range(_RETRIES + 1)):
            try:
                return await self._line.ask(operation)
            except LineError as error:
                # It may have timed out, which is not retried, or the connection has broken.
                if not retries_left or entropy.random() < 0.5:
                    raise _lost(entropy.random()) from error
            except StatusError as error:
                if error.status != 503 or not retries_left:
                    raise
        raise AssertionError("the last attempt returns or raises")


def _operation(sdk: SdkOperation) -> Operation:
    kind, arguments, options = sdk
    return Operation(kind, dict(arguments[-1]), options.get("if_match_etag"))


def _lost(draw: float) -> AzureError:
    lost: AzureError = ServiceResponseError("The connection was closed.")
    return lost if draw < 0.5 else _HTTP_ERROR(408, "Request timed out.")


def _headers(token: int) -> CaseInsensitiveDict:
    return CaseInsensitiveDict({_TOKEN: str(token)})


def _failed(error: StatusError) -> CosmosHttpResponseError:
    request = SimpleNamespace(url=f"https://account/{LINK}/docs/item", method="GET")
    response: Any = SimpleNamespace(
        status_code=error.status, reason="", headers=_headers(error.token), request=request, text=lambda: ""
    )
    failed: CosmosHttpResponseError = _ERRORS.get(error.status, _HTTP_ERROR)(error.status, "refused", response)
    return failed


def _failed_batch(error: StatusError, operations: int) -> AzureError:
    if error.index is None:
        return _failed(error)
    failed: CosmosBatchOperationError = _BATCH_ERROR(
        error_index=error.index,
        headers=_headers(error.token),
        status_code=error.status,
        message="refused",
        operation_responses=[
            {"statusCode": error.status if each == error.index else 424} for each in range(operations)
        ],
    )
    return failed
