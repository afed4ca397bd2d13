"""What the service says, as this library's errors: also what the local Cosmos DB never answers a batch with."""

from __future__ import annotations

from types import SimpleNamespace
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
from tests.support.orders import Order

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


def of_item(error: CosmosHttpResponseError, path: str = "/dbs/d/colls/c/docs/o1") -> CosmosHttpResponseError:
    error.response = cast(Any, SimpleNamespace(request=SimpleNamespace(url=f"https://a{path}"), headers={}))
    return error


def test_a_missing_item_is_told_from_a_missing_container_and_from_a_replica_that_lags() -> None:
    assert type(failed_read(of_item(answer(404)), "order 'o1'")) is NotFound
    assert type(failed_read(of_item(answer(404, 1003)), "order 'o1'")) is ServiceRefused
    assert type(failed_read(of_item(answer(404, 1002)), "order 'o1'")) is Unavailable
    assert type(failed_read(of_item(answer(404), "/dbs/d/colls/c"), "order 'o1'")) is ServiceRefused
    assert type(failed_read(of_item(answer(403)), "order 'o1'")) is ServiceRefused


def status_of(error: OutboxError) -> int:
    assert isinstance(error, ServiceRefused)
    return error.status


def test_a_refusal_tells_its_status_and_0_where_there_is_none(batch: Batch) -> None:
    no_status = ClientAuthenticationError("no token")

    assert status_of(failed_read(answer(403), "order 'o1'")) == 403
    assert status_of(failed_batch(answer(403), batch)) == 403
    assert status_of(failed_batch(operation_error(403), batch)) == 403
    assert status_of(failed_read(no_status, "order 'o1'")) == 401
    assert status_of(failed_batch(no_status, batch)) == 401


def test_a_throttled_read_and_a_throttled_commit_tell_the_wait(batch: Batch) -> None:
    error = answer(429)
    error.headers = cast(Any, {"x-ms-retry-after-ms": "2500"})

    for failure in (failed_read(error, "order 'o1'"), failed_batch(error, batch)):
        assert isinstance(failure, Throttled)
        assert failure.retry_after == 2.5


@pytest.mark.parametrize("told", [{}, {"x-ms-retry-after-ms": "soon"}, None])
def test_without_a_wait_there_is_none(told: dict[str, str] | None) -> None:
    error = answer(429)
    error.headers = cast(Any, told)

    failure = failed_read(error, "order 'o1'")

    assert isinstance(failure, Throttled)
    assert failure.retry_after == 0


def test_the_longest_wait_of_a_batch_is_the_one_to_keep(batch: Batch) -> None:
    error = operation_error(429, 1, retryAfterMilliseconds=500)
    error.headers = cast(Any, {"x-ms-retry-after-ms": "4000"})

    failure = failed_batch(error, batch)

    assert isinstance(failure, Throttled)
    assert failure.retry_after == 4


def test_what_the_service_said_is_told_by_its_kind_and_its_first_line(batch: Batch) -> None:
    assert failed_batch(ServiceRequestError("no connection.\nmore"), batch).what.endswith(
        "is not known: ServiceRequestError: no connection."
    )
    assert failed_batch(ServiceRequestError(""), batch).what.endswith("ServiceRequestError.")
    assert failed_batch(operation_error(409), batch).what == "Order 'o1' exists already."


def test_a_refusal_for_size_tells_the_size(batch: Batch) -> None:
    failure = failed_batch(answer(413), batch)

    assert isinstance(failure, BatchTooLarge)
    assert failure.what.endswith(f"too large: 2 operations, {batch.size} bytes.")


@pytest.mark.parametrize(
    ("status", "transient"), [(399, True), (400, False), (499, False), (500, True), (410, True)]
)
def test_server_errors_and_unreadable_successes_leave_it_open(status: int, transient: bool, batch: Batch) -> None:
    kind = CommitUncertain if transient else ServiceRefused

    assert type(failed_batch(answer(status), batch)) is kind
