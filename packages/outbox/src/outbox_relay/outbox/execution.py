"""Sends a batch, and finds out whether a batch whose response was lost was applied.

azure-cosmos retries a write after a broken connection or a 503, and the retry can collide with the first attempt:
the SDK then reports a conflict or a failed precondition for a commit that succeeded. After other errors, such as a
timeout, the outcome is unknown. Event ids are random, so if an event of the batch is stored, the batch was
applied. A read cannot prove the opposite, because a replica that lags also returns 404. So the library sends a
write, which the primary decides: it replaces the event on condition of an ETag that no version has. 412 means that
the event is stored, 404 that it is not, and neither changes anything:
https://learn.microsoft.com/azure/cosmos-db/database-transactions-optimistic-concurrency.

A commit without events has nothing that is only its own. It was applied if its documents are stored as it wrote
them, in another version than it replaced. If another writer has changed them since, that is unknown.

It also makes a client read its own commits, and the changes that its commits collided with. Under session
consistency, any replica that has reached the session token of a read may serve it
(https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency). azure-cosmos 4.17.1 keeps a
client's tokens, but not those in responses to transactional batches, and those in other error responses only if
the response names the container. A read after a commit may then be served by a replica that lags. The .NET SDK
keeps all of them (GatewayStoreModel in azure-cosmos-dotnet-v3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.core.utils import CaseInsensitiveDict
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosBatchOperationError

from outbox_relay.outbox.batch import Batch, Operation
from outbox_relay.outbox.errors import CommitUncertain, Conflict, NotFound, OutboxError, PreconditionFailed
from outbox_relay.outbox.failures import failed_batch, failed_read

# An ETag that no version has, so that a commit with it raises PreconditionFailed.
SUPERSEDED = '"superseded"'

_CONTAINER_PATH = "x-ms-alt-content-path"


async def execute(container: ContainerProxy, batch: Batch) -> list[str]:
    """Write the batch once and return the new ETag of each document, in order.

    Raises:
        OutboxError: The batch was not applied.
        CommitUncertain: Whether it was applied is unknown.
    """
    try:
        results = await container.execute_item_batch(
            [operation.as_sdk() for operation in batch.operations], partition_key=batch.partition_key
        )
    except AzureError as error:
        if isinstance(error, CosmosBatchOperationError):
            keep_session_token(container, error.headers)
        failure = failed_batch(error, batch)
        if _may_be_applied(error, failure) and await _is_applied(container, batch, failure):
            return [await _etag_of(container, operation) for operation in batch.operations]
        raise _with_outcome(failure, error, batch) from error
    keep_session_token(container, results.get_response_headers())
    return [str(result["eTag"]) for result in results]


def _may_be_applied(error: AzureError, failure: OutboxError) -> bool:
    """Return True if an attempt may have been applied. A retry after that fails at the first operation."""
    if isinstance(error, CosmosBatchOperationError) and error.error_index:
        return False
    return isinstance(failure, Conflict | PreconditionFailed | NotFound | CommitUncertain)


async def _is_applied(container: ContainerProxy, batch: Batch, failure: OutboxError) -> bool:
    event = batch.first_event
    if event is None:
        return await _is_stored(container, batch, failure)
    try:
        await container.replace_item(
            event.document["id"], event.document, etag=SUPERSEDED, match_condition=MatchConditions.IfNotModified
        )
    except CosmosAccessConditionFailedError as error:
        keep_session_token(container, error.headers)
    except AzureError as error:
        reason = failed_read(error, event.name)
        if isinstance(reason, NotFound):
            return False
        raise CommitUncertain(f"The outcome of {batch.name} is unknown: {failure.what} {reason.what}") from error
    return True


async def _is_stored(container: ContainerProxy, batch: Batch, failure: OutboxError) -> bool:
    # The session token in the response, which has been kept, makes a read see what the write collided with.
    for operation in batch.operations:
        document = operation.document
        try:
            stored = await read_document(container, document["id"], document["partitionKey"], operation.name)
        except NotFound:
            return False
        except OutboxError as error:
            unknown = f"The outcome of {batch.name} is unknown: {failure.what} {error.what}"
            raise CommitUncertain(unknown) from error
        if stored["_etag"] == operation.etag or not _is_unchanged(stored, operation):
            return False
    return True


def _with_outcome(failure: OutboxError, error: AzureError, batch: Batch) -> OutboxError:
    """Add the known outcome of the commit to a failed precondition."""
    if not isinstance(failure, PreconditionFailed):
        return failure
    if batch.first_event is None and _may_be_applied(error, failure):
        return PreconditionFailed(
            f"{failure.what} The commit has no event by which it could be recognised: if the response to an "
            "earlier attempt was lost, that attempt may have been applied before the change."
        )
    return PreconditionFailed(f"{failure.what} Nothing of this commit was written.")


def _is_unchanged(stored: Mapping[str, Any], operation: Operation) -> bool:
    return all(stored.get(name) == value for name, value in operation.document.items())


async def _etag_of(container: ContainerProxy, operation: Operation) -> str:
    """Return the ETag of a document whose write got no response; SUPERSEDED if it was changed since."""
    document = operation.document
    try:
        stored = await read_document(container, document["id"], document["partitionKey"], operation.name)
    except OutboxError:
        # The commit was applied, so it must not fail here. At worst the next one raises PreconditionFailed.
        return SUPERSEDED
    return str(stored["_etag"]) if _is_unchanged(stored, operation) else SUPERSEDED


async def read_document(
    container: ContainerProxy, identifier: str, partition_key: str, subject: str, **condition: Any
) -> dict[str, Any]:
    """Return the stored document; empty if it does not meet `condition` (304).

    Raises:
        NotFound, Throttled, Unavailable, ServiceRefused: It could not be read.
    """
    try:
        return await container.read_item(identifier, partition_key, **condition)
    except AzureError as error:
        raise failed_read(error, subject) from error


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
