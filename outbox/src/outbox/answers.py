"""What the service or the SDK says, as this library's errors.

A batch that fails answers with a status for each operation: the culprit's own, 424 for all others.
Source: https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from outbox.batch import Batch
from outbox.errors import (
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
    """The error of a read of `subject`."""
    status = _status(error)
    if status == HTTPStatus.NOT_FOUND and _is_of_an_item(error):
        return NotFound(f"There is no {subject}.")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"Reading {subject} was throttled.", _retry_after(error))
    if status is None or _is_transient(status) or _lags(error):
        return Unavailable(f"{subject} could not be read: {_said(error)}.")
    return ServiceRefused(f"Cosmos DB refused to read {subject}: {_said(error)}.", status)


def failed_batch(error: AzureError, batch: Batch) -> OutboxError:
    """The error of a commit."""
    if isinstance(error, CosmosBatchOperationError):
        return _failed_operation(error, batch)
    status = _status(error)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Throttled(f"{_capital(batch.name)} was throttled.", _retry_after(error))
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return _too_large(batch)
    if status is None or _is_transient(status) or _lags(error):
        return CommitUncertain(f"Whether {batch.name} was done is not known: {_said(error)}.")
    return ServiceRefused(f"Cosmos DB refused {batch.name}: {_said(error)}.", status)


def _failed_operation(error: CosmosBatchOperationError, batch: Batch) -> OutboxError:
    culprit = batch.operations[error.error_index].name
    # Always there, other than an HttpResponseError's in general, by which the SDK annotates it.
    status: Any = error.status_code
    match status:
        case HTTPStatus.CONFLICT:
            return Conflict(f"{_capital(culprit)} exists already.")
        case HTTPStatus.PRECONDITION_FAILED:
            return PreconditionFailed(f"{_capital(culprit)} was changed by someone else since it was read.")
        case HTTPStatus.NOT_FOUND:
            return NotFound(f"There is no {culprit} any more, and nothing was written.")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return _too_large(batch)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Throttled(f"{_capital(batch.name)} was throttled.", _operation_retry_after(error))
        case _ if _is_transient(status):
            return CommitUncertain(f"{_capital(culprit)} was answered with {status}.")
    return ServiceRefused(f"Cosmos DB refused {culprit} with {status}.", status)


def _too_large(batch: Batch) -> BatchTooLarge:
    count = len(batch.operations)
    return BatchTooLarge(
        f"Cosmos DB found {batch.name} too large: {count} operations, {batch.size} bytes.", count, batch.size
    )


def _status(error: AzureError) -> int | None:
    """None where there was no answer: no connection, or one that was lost, or a timeout."""
    if isinstance(error, ClientAuthenticationError):
        return error.status_code or HTTPStatus.UNAUTHORIZED.value
    return error.status_code if isinstance(error, HttpResponseError) else None


def _is_transient(status: int) -> bool:
    """Whether a repetition may succeed, and what became of a write cannot be told from the answer."""
    # A success whose body could not be read is no answer either.
    return (
        status < HTTPStatus.BAD_REQUEST
        or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GONE, _RETRY_WITH)
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _is_of_an_item(error: AzureError) -> bool:
    """Whether a 404 is about an item: the SDK asks for the container too, which can be missing as well."""
    if _sub_status(error) in (_OWNER_NOT_FOUND, _READ_SESSION_NOT_AVAILABLE):
        return False
    response = getattr(error, "response", None)
    url = getattr(getattr(response, "request", None), "url", "")
    return "/docs/" in url


def _lags(error: AzureError) -> bool:
    """Whether no replica had caught up with what this client has written or seen: 404 in a batch too."""
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


def _said(error: AzureError) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
