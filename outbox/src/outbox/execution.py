"""Sending a batch, and telling whether one whose answer was lost was done.

azure-cosmos repeats a write by itself when the connection broke or the service said 503, and then can meet its own
first attempt: a Conflict or a PreconditionFailed that is none. Other losses it reports, and nobody knows. The
ids of events are random, so an event of the batch in the container tells that the batch was done. A read could not
tell that it was not: a replica that lags answers 404 as well. So the question is a write, which the primary
decides: to replace the event where it has an ETag that no version has. 412 says that the event is there, 404 that
it is not, and neither changes anything:
https://learn.microsoft.com/azure/cosmos-db/database-transactions-optimistic-concurrency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosBatchOperationError

from outbox.answers import failed_batch, failed_read
from outbox.batch import Batch, Operation
from outbox.errors import CommitUncertain, Conflict, NotFound, OutboxError, PreconditionFailed
from outbox.session import take_over

# An ETag that no version has: a commit on it finds that someone else was first.
SUPERSEDED = '"superseded"'


async def execute(container: ContainerProxy, batch: Batch) -> list[str]:
    """Write the batch, once, and give the new ETag of each document in order.

    Raises:
        OutboxError: It was not written; or CommitUncertain, where that could not be found out.
    """
    try:
        results = await container.execute_item_batch(
            [operation.as_sdk() for operation in batch.operations], partition_key=batch.partition_key
        )
    except AzureError as error:
        if isinstance(error, CosmosBatchOperationError):
            take_over(container, error.headers)
        failure = failed_batch(error, batch)
        if _may_be_done(error, failure) and await _is_done(container, batch, failure):
            return [await _etag_of(container, operation) for operation in batch.operations]
        raise failure from error
    take_over(container, results.get_response_headers())
    return _etags(results)


def _may_be_done(error: AzureError, failure: OutboxError) -> bool:
    """Whether an earlier attempt may have been done: it changed what the first operation expects to find."""
    if isinstance(error, CosmosBatchOperationError) and error.error_index:
        return False
    return isinstance(failure, Conflict | PreconditionFailed | NotFound | CommitUncertain)


async def _is_done(container: ContainerProxy, batch: Batch, failure: OutboxError) -> bool:
    event = batch.first_event
    if event is None:
        return False
    try:
        await container.replace_item(
            event.document["id"], event.document, etag=SUPERSEDED, match_condition=MatchConditions.IfNotModified
        )
    except CosmosAccessConditionFailedError as error:
        take_over(container, error.headers)
    except AzureError as error:
        reason = failed_read(error, event.name)
        if isinstance(reason, NotFound):
            return False
        raise CommitUncertain(
            f"Whether {batch.name} was done is not known: {failure.what} {reason.what}"
        ) from error
    return True


async def _etag_of(container: ContainerProxy, operation: Operation) -> str:
    """The ETag of a document that was written without an answer; SUPERSEDED where another version followed it."""
    document = operation.document
    try:
        stored = await read_document(container, document["id"], document["partitionKey"], operation.name)
    except OutboxError:
        # The commit was done, and must not fail for want of an ETag: at worst the next one is refused.
        return SUPERSEDED
    unchanged = all(stored.get(name) == value for name, value in document.items())
    return str(stored["_etag"]) if unchanged else SUPERSEDED


async def read_document(
    container: ContainerProxy, identifier: str, partition_key: str, subject: str, **condition: Any
) -> dict[str, Any]:
    """The stored document; empty where `condition` says that the reader has it already.

    Raises:
        NotFound, Throttled, Unavailable, ServiceRefused
    """
    try:
        return await container.read_item(identifier, partition_key, **condition)
    except AzureError as error:
        raise failed_read(error, subject) from error


def _etags(results: Sequence[dict[str, Any]]) -> list[str]:
    return [str(result["eTag"]) for result in results]
