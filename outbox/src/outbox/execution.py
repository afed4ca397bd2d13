"""Sending a batch, and telling whether one whose answer was lost was done.

azure-cosmos repeats a write by itself when the connection broke or the service said 503, and then can meet its own
first attempt: a Conflict or a PreconditionFailed that is none. Other losses it reports, and nobody knows. The
ids of events are random, so an event of the batch in the container tells that the batch was done. Reading one's
own write takes session consistency or a stronger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError

from outbox.answers import failed_batch, failed_read
from outbox.batch import Batch, Operation
from outbox.errors import CommitUncertain, Conflict, NotFound, OutboxError, PreconditionFailed

# An ETag that no version has: the next commit on it finds that someone else was first.
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
        failure = failed_batch(error, batch)
        if _may_be_done(error, failure) and await _is_done(container, batch, failure):
            return [await _etag_of(container, operation) for operation in batch.operations]
        raise failure from error
    return _etags(results)


def _may_be_done(error: AzureError, failure: OutboxError) -> bool:
    """Whether an earlier attempt may have been done: it changed what the first operation expects to find."""
    if isinstance(error, CosmosBatchOperationError) and error.error_index:
        return False
    return isinstance(failure, Conflict | PreconditionFailed | NotFound | CommitUncertain)


async def _is_done(container: ContainerProxy, batch: Batch, failure: OutboxError) -> bool:
    if batch.event_id is None:
        return False
    try:
        await read_document(container, batch.event_id, batch.partition_key, "event")
    except NotFound:
        return False
    except OutboxError as error:
        raise CommitUncertain(
            f"Whether {batch.name} was done is not known: {failure.what} {error.what}"
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
