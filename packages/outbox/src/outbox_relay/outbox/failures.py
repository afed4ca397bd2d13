"""Translates errors of the service and the SDK into this library's errors.

The response to a failed batch has a status for each operation: the failed one's own, and 424 for all others.
Source: https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from outbox_relay.outbox.batch import Batch
from outbox_relay.outbox.errors import (
    BatchTooLarge,
    CommitUncertain,
    Conflict,
    NotFound,
    OutboxError,
    PreconditionFailed,
    ServiceRefused,
    Throttled,
    Unavailable,
)

_RETRY_WITH = 449
_READ_SESSION_NOT_AVAILABLE = 1002
_OWNER_NOT_FOUND = 1003
_RETRY_AFTER = "x-ms-retry-after-ms"
_OPERATION_RETRY_AFTER = "retryAfterMilliseconds"


def failed_read(error: AzureError, subject: str) -> OutboxError:
    """Return the error for a failed read of `subject`."""
    status = _status(error)
    if status == HTTPStatus.NOT_FOUND and _is_about_item(error):
        return NotFound(f"There is no {subject}.")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"Reading {subject} was throttled.", _retry_after(error))
    if status is None or _is_transient(status) or _is_replica_behind(error):
        return Unavailable(f"{_capitalized(subject)} could not be read: {_summary(error)}.")
    return ServiceRefused(f"Cosmos DB refused to read {subject}: {_summary(error)}.", status)


def failed_batch(error: AzureError, batch: Batch) -> OutboxError:
    """Return the error for a failed commit."""
    if isinstance(error, CosmosBatchOperationError):
        return _failed_operation(error, batch)
    status = _status(error)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"{_capitalized(batch.name)} was throttled.", _retry_after(error))
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return _too_large(batch)
    if status is None or _is_transient(status) or _is_replica_behind(error):
        return CommitUncertain(f"The outcome of {batch.name} is unknown: {_summary(error)}.")
    return ServiceRefused(f"Cosmos DB refused {batch.name}: {_summary(error)}.", status)


def _failed_operation(error: CosmosBatchOperationError, batch: Batch) -> OutboxError:
    failed = batch.operations[error.error_index].name
    # The SDK annotates it as optional, as HttpResponseError does, but it is always set here.
    status: Any = error.status_code
    match status:
        case HTTPStatus.CONFLICT:
            return Conflict(f"{_capitalized(failed)} already exists.")
        case HTTPStatus.PRECONDITION_FAILED:
            return PreconditionFailed(f"{_capitalized(failed)} was changed by another writer since it was read.")
        case HTTPStatus.NOT_FOUND:
            return NotFound(f"{_capitalized(failed)} no longer exists.")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return _too_large(batch)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Throttled(f"{_capitalized(batch.name)} was throttled.", _operation_retry_after(error))
        case _ if _is_transient(status):
            return CommitUncertain(
                f"The outcome of {batch.name} is unknown: {failed} failed with status {status}."
            )
    return ServiceRefused(f"Cosmos DB refused {failed} with status {status}.", status)


def _too_large(batch: Batch) -> BatchTooLarge:
    count = len(batch.operations)
    return BatchTooLarge(
        f"Cosmos DB refused {batch.name} as too large: {count} operations, {batch.size} bytes.", count, batch.size
    )


def _status(error: AzureError) -> int | None:
    """Return the status, or None if there was no response: no connection, a lost connection or a timeout."""
    if isinstance(error, ClientAuthenticationError):
        return error.status_code or HTTPStatus.UNAUTHORIZED.value
    return error.status_code if isinstance(error, HttpResponseError) else None


def _is_transient(status: int) -> bool:
    """Return True if a retry may succeed and the response leaves the outcome of a write open."""
    # The SDK raises an error with a success status if it cannot read the body: that leaves the outcome open too.
    return (
        status < HTTPStatus.BAD_REQUEST
        or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GONE, _RETRY_WITH)
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _is_about_item(error: AzureError) -> bool:
    """Return True if a 404 is about an item. The SDK also requests the container, which may be missing too."""
    if _sub_status(error) in (_OWNER_NOT_FOUND, _READ_SESSION_NOT_AVAILABLE):
        return False
    response = getattr(error, "response", None)
    url = getattr(getattr(response, "request", None), "url", "")
    return "/docs/" in url


def _is_replica_behind(error: AzureError) -> bool:
    """Return True if no replica has caught up with the client's session token. A batch gets this 404 too."""
    return _status(error) == HTTPStatus.NOT_FOUND and _sub_status(error) == _READ_SESSION_NOT_AVAILABLE


def _sub_status(error: AzureError) -> int | None:
    return error.sub_status if isinstance(error, CosmosHttpResponseError) else None


def _retry_after(error: AzureError) -> float:
    headers = getattr(error, "headers", None) or {}
    return _seconds(headers.get(_RETRY_AFTER))


def _operation_retry_after(error: CosmosBatchOperationError) -> float:
    responses = error.operation_responses or []
    waits = [_seconds(response.get(_OPERATION_RETRY_AFTER)) for response in responses]
    return max([_retry_after(error), *waits])


def _seconds(milliseconds: object) -> float:
    try:
        return float(str(milliseconds)) / 1_000
    except ValueError:
        return 0.0


def _summary(error: AzureError) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
