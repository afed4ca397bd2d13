"""What the service says, as this library's errors: also what the local Cosmos DB never answers a batch with."""

from __future__ import annotations

from typing import Any, cast

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosClientTimeoutError, CosmosHttpResponseError

from outbox import (
    BatchTooLarge,
    CommitUncertain,
    Conflict,
    NotFound,
    OutboxError,
    PreconditionFailed,
    Repository,
    ServiceRefused,
    Throttled,
    Unavailable,
)
from outbox.answers import failed_batch, failed_read
from outbox.batch import Batch
from outbox.context import ContainerContext
from tests.unit.outbox.orders import Order

# The SDK's errors are not annotated.
BATCH_ERROR: Any = CosmosBatchOperationError
RESPONSE_ERROR: Any = CosmosHttpResponseError
TIMEOUT_ERROR: Any = CosmosClientTimeoutError


@pytest.fixture
def batch() -> Batch:
    context = ContainerContext(cast(ContainerProxy, None), event_ttl=1, event_type="domainEvent")
    Repository(context, Order).create(Order("tea", id="o1"))
    return Batch.of(context.data_objects)


def operation_error(status: int, index: int = 0, **culprit: Any) -> CosmosBatchOperationError:
    responses: list[dict[str, Any]] = [{"statusCode": 424}, {"statusCode": 424}]
    responses[index] = {"statusCode": status, **culprit}
    error: CosmosBatchOperationError = BATCH_ERROR(
        error_index=index, headers={}, status_code=status, message="", operation_responses=responses
    )
    return error


def answer(status: int, sub_status: int | None = None) -> CosmosHttpResponseError:
    error: CosmosHttpResponseError = RESPONSE_ERROR(
        status_code=status, message="it was\nsaid", sub_status=sub_status
    )
    return error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFound),
        (409, Conflict),
        (412, PreconditionFailed),
        (413, BatchTooLarge),
        (429, Throttled),
        (449, CommitUncertain),
        (408, CommitUncertain),
        (503, CommitUncertain),
        (0, CommitUncertain),
        (400, ServiceRefused),
        (403, ServiceRefused),
    ],
)
def test_a_batch_fails_by_its_culprits_status(batch: Batch, status: int, kind: type[OutboxError]) -> None:
    error = failed_batch(operation_error(status), batch)

    assert type(error) is kind
    assert "order 'o1'" in str(error).replace("Order", "order")


def test_the_culprit_is_named_by_its_place(batch: Batch) -> None:
    assert "OrderPlaced domainEvent" in failed_batch(operation_error(409, 1), batch).what


def test_a_throttled_operation_tells_the_wait(batch: Batch) -> None:
    error = failed_batch(operation_error(429, 1, retryAfterMilliseconds=1500), batch)

    assert isinstance(error, Throttled)
    assert error.retry_after == 1.5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(413), BatchTooLarge),
        (answer(429), Throttled),
        (answer(408), CommitUncertain),
        (answer(410), CommitUncertain),
        (answer(500), CommitUncertain),
        (answer(200), CommitUncertain),
        (answer(404), ServiceRefused),
        (answer(404, 1002), CommitUncertain),
        (answer(403), ServiceRefused),
        (ServiceRequestError("no connection"), CommitUncertain),
        (ServiceResponseError("cut"), CommitUncertain),
        (TIMEOUT_ERROR(), CommitUncertain),
        (ClientAuthenticationError("no token"), ServiceRefused),
    ],
)
def test_a_batch_that_was_not_carried_out(batch: Batch, error: AzureError, kind: type[OutboxError]) -> None:
    assert type(failed_batch(error, batch)) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(404), ServiceRefused),
        (answer(404, 1002), Unavailable),
        (answer(404, 1003), ServiceRefused),
        (answer(449), Unavailable),
        (answer(503), Unavailable),
        (ServiceResponseError("cut"), Unavailable),
        (ClientAuthenticationError("no token"), ServiceRefused),
    ],
)
def test_a_read_that_failed(error: AzureError, kind: type[OutboxError]) -> None:
    failure = failed_read(error, "order 'o1'")

    assert type(failure) is kind
    assert "said" not in str(failure)
