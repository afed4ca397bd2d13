"""Errors: what they say, those of the service and the SDK, and continuations that are refused."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosClientTimeoutError, CosmosHttpResponseError

from outbox_relay.outbox import (
    BatchTooLarge,
    CommitUncertain,
    Conflict,
    InvalidContinuation,
    InvalidDocument,
    MixedPartitions,
    NotFound,
    NotModified,
    OutboxError,
    Page,
    PreconditionFailed,
    Refused,
    Repository,
    ServiceRefused,
    Throttled,
    Unavailable,
    errors,
)
from outbox_relay.outbox.batch import Batch
from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.failures import failed_batch, failed_read
from outbox_relay.outbox.paging import Listing
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


def operation_error(status: int, index: int = 0, **failed: Any) -> CosmosBatchOperationError:
    responses: list[dict[str, Any]] = [{"statusCode": 424}, {"statusCode": 424}]
    responses[index] = {"statusCode": status, **failed}
    error: CosmosBatchOperationError = BATCH_ERROR(
        error_index=index, headers={}, status_code=status, message="", operation_responses=responses
    )
    return error


def response_error(status: int, sub_status: int | None = None) -> CosmosHttpResponseError:
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
def test_the_status_of_the_failed_operation_decides_the_error_of_a_batch(
    batch: Batch, status: int, kind: type[OutboxError]
) -> None:
    error = failed_batch(operation_error(status), batch)

    assert type(error) is kind
    assert "order 'o1'" in str(error).replace("Order", "order")


def test_the_failed_operation_is_named(batch: Batch) -> None:
    assert "OrderPlaced domainEvent" in failed_batch(operation_error(409, 1), batch).what


def test_a_throttled_operation_reports_the_wait(batch: Batch) -> None:
    error = failed_batch(operation_error(429, 1, retryAfterMilliseconds=1500), batch)

    assert isinstance(error, Throttled)
    assert error.retry_after == 1.5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (response_error(413), BatchTooLarge),
        (response_error(429), Throttled),
        (response_error(408), CommitUncertain),
        (response_error(410), CommitUncertain),
        (response_error(500), CommitUncertain),
        (response_error(200), CommitUncertain),
        (response_error(404), ServiceRefused),
        (response_error(404, 1002), CommitUncertain),
        (response_error(403), ServiceRefused),
        (ServiceRequestError("no connection"), CommitUncertain),
        (ServiceResponseError("cut"), CommitUncertain),
        (TIMEOUT_ERROR(), CommitUncertain),
        (ClientAuthenticationError("no token"), ServiceRefused),
    ],
)
def test_the_error_of_a_batch_that_failed_as_a_whole(
    batch: Batch, error: AzureError, kind: type[OutboxError]
) -> None:
    assert type(failed_batch(error, batch)) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (response_error(404), ServiceRefused),
        (response_error(404, 1002), Unavailable),
        (response_error(404, 1003), ServiceRefused),
        (response_error(449), Unavailable),
        (response_error(503), Unavailable),
        (ServiceResponseError("cut"), Unavailable),
        (ClientAuthenticationError("no token"), ServiceRefused),
    ],
)
def test_the_error_of_a_failed_read(error: AzureError, kind: type[OutboxError]) -> None:
    failure = failed_read(error, "order 'o1'")

    assert type(failure) is kind
    assert "said" not in str(failure)


def of_item(error: CosmosHttpResponseError, path: str = "/dbs/d/colls/c/docs/o1") -> CosmosHttpResponseError:
    error.response = cast(Any, SimpleNamespace(request=SimpleNamespace(url=f"https://a{path}"), headers={}))
    return error


def test_a_missing_item_differs_from_a_missing_container_and_from_a_lagging_replica() -> None:
    assert type(failed_read(of_item(response_error(404)), "order 'o1'")) is NotFound
    assert type(failed_read(of_item(response_error(404, 1003)), "order 'o1'")) is ServiceRefused
    assert type(failed_read(of_item(response_error(404, 1002)), "order 'o1'")) is Unavailable
    assert type(failed_read(of_item(response_error(404), "/dbs/d/colls/c"), "order 'o1'")) is ServiceRefused
    assert type(failed_read(of_item(response_error(403)), "order 'o1'")) is ServiceRefused


def status_of(error: OutboxError) -> int:
    assert isinstance(error, ServiceRefused)
    return error.status


def test_a_refusal_reports_its_status_and_401_without_a_response(batch: Batch) -> None:
    no_status = ClientAuthenticationError("no token")

    assert status_of(failed_read(response_error(403), "order 'o1'")) == 403
    assert status_of(failed_batch(response_error(403), batch)) == 403
    assert status_of(failed_batch(operation_error(403), batch)) == 403
    assert status_of(failed_read(no_status, "order 'o1'")) == 401
    assert status_of(failed_batch(no_status, batch)) == 401


def test_a_throttled_read_and_a_throttled_commit_report_the_wait(batch: Batch) -> None:
    error = response_error(429)
    error.headers = cast(Any, {"x-ms-retry-after-ms": "2500"})

    for failure in (failed_read(error, "order 'o1'"), failed_batch(error, batch)):
        assert isinstance(failure, Throttled)
        assert failure.retry_after == 2.5


@pytest.mark.parametrize("headers", [{}, {"x-ms-retry-after-ms": "soon"}, None])
def test_without_a_valid_header_the_wait_is_zero(headers: dict[str, str] | None) -> None:
    error = response_error(429)
    error.headers = cast(Any, headers)

    failure = failed_read(error, "order 'o1'")

    assert isinstance(failure, Throttled)
    assert failure.retry_after == 0


def test_the_longest_wait_of_a_batch_counts(batch: Batch) -> None:
    error = operation_error(429, 1, retryAfterMilliseconds=500)
    error.headers = cast(Any, {"x-ms-retry-after-ms": "4000"})

    failure = failed_batch(error, batch)

    assert isinstance(failure, Throttled)
    assert failure.retry_after == 4


def test_a_message_quotes_the_kind_and_the_first_line_of_the_sdks_error(batch: Batch) -> None:
    assert failed_batch(ServiceRequestError("no connection.\nmore"), batch).what.endswith(
        "is unknown: ServiceRequestError: no connection."
    )
    assert failed_batch(ServiceRequestError(""), batch).what.endswith("ServiceRequestError.")
    assert failed_batch(operation_error(409), batch).what == "Order 'o1' already exists."


def test_a_refusal_for_size_reports_the_size(batch: Batch) -> None:
    failure = failed_batch(response_error(413), batch)

    assert isinstance(failure, BatchTooLarge)
    assert failure.what.endswith(f"too large: 2 operations, {batch.size} bytes.")


@pytest.mark.parametrize(
    ("status", "transient"), [(399, True), (400, False), (499, False), (500, True), (410, True)]
)
def test_server_errors_and_unreadable_successes_leave_the_outcome_open(
    status: int, transient: bool, batch: Batch
) -> None:
    kind = CommitUncertain if transient else ServiceRefused

    assert type(failed_batch(response_error(status), batch)) is kind


# What errors say, and how an API answers with them


WHAT = "It went wrong."
EVERY = [
    (NotFound(WHAT), 404),
    (NotModified(WHAT), 304),
    (Conflict(WHAT), 409),
    (PreconditionFailed(WHAT), 412),
    (Throttled(WHAT, 1.5), 429),
    (Refused(WHAT), 400),
    (BatchTooLarge(WHAT, 101, 5), 413),
    (MixedPartitions(WHAT, ("p", "q")), 400),
    (InvalidDocument(WHAT), 400),
    (InvalidContinuation(WHAT), 400),
    (CommitUncertain(WHAT), 503),
    (Unavailable(WHAT), 503),
    (ServiceRefused(WHAT, 403), 502),
]


@pytest.mark.parametrize(("error", "status"), EVERY)
def test_an_error_says_what_happened_and_then_what_to_do(error: OutboxError, status: int) -> None:
    name = type(error).__name__

    assert error.what == WHAT
    assert str(error) == f"{WHAT} {' '.join((error.__doc__ or '').split())}"
    assert len(str(error)) > len(WHAT) + 15
    assert error.http_status == status
    assert re.search(rf"── {name} +{status} ", errors.__doc__ or "")


def test_every_error_is_listed() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OutboxError)}

    assert kinds == {OutboxError, *(type(error) for error, _ in EVERY)}
    assert all(kind.__module__ == "outbox_relay.outbox.errors" for kind in kinds)


def test_a_custom_error_has_status_500_and_needs_no_advice() -> None:
    class Odd(OutboxError):
        pass

    Odd.__doc__ = None

    assert (str(Odd(WHAT)), Odd.http_status) == (WHAT, 500)


def test_the_limits_are_those_of_a_transactional_batch() -> None:
    assert (errors.MAX_OPERATIONS, errors.MAX_BATCH_BYTES) == (100, 2_097_152)


# Continuations of pages, without a database


LISTING = Listing("order", "p", "c.data.quantity > @least OR c.id = @id", {"@least": 1, "@id": "o1"}, False)


@pytest.mark.parametrize("token", ["", "t", "to", "tok", "ü鍵", "+RID:~abc#RT:1#TRC:5"])
def test_a_continuation_contains_the_services_token(token: str) -> None:
    continuation = LISTING._continuation(token)

    assert LISTING._token(continuation) == token
    assert continuation.replace("-", "").replace("_", "").isalnum()


def test_the_order_of_parameters_does_not_matter() -> None:
    same = replace(LISTING, parameters={"@id": "o1", "@least": 1})

    assert same._token(LISTING._continuation("t")) == "t"


@pytest.mark.parametrize(
    "change",
    [
        {"document_type": "client"},
        {"partition_key": "q"},
        {"partition_key": None},
        {"where": None},
        {"parameters": {"@least": 2, "@id": "o1"}},
        {"include_deleted": True},
    ],
)
def test_a_continuation_of_another_listing_is_rejected(change: dict[str, object]) -> None:
    other = replace(LISTING, **change)  # type: ignore[arg-type]

    with pytest.raises(InvalidContinuation, match="belongs to another listing"):
        other._token(LISTING._continuation("t"))


@pytest.mark.parametrize("text", ["", "=", "W10", "bnVsbA", "MQ", "!!!!", "ü", "AAAA"])
def test_an_invalid_continuation_is_rejected(text: str) -> None:
    with pytest.raises(InvalidContinuation, match="was not issued by this library"):
        LISTING._token(text)


def test_a_continuation_with_illegal_characters_is_rejected() -> None:
    with pytest.raises(InvalidContinuation, match="was not issued by this library"):
        LISTING._token("!!!!" + LISTING._continuation("t"))


def test_a_forged_continuation_without_a_string_is_rejected() -> None:
    listing, _ = json.loads(base64.urlsafe_b64decode(LISTING._continuation("t") + "=="))
    forged = base64.urlsafe_b64encode(json.dumps([listing, 7]).encode()).decode().rstrip("=")

    with pytest.raises(InvalidContinuation, match="belongs to another listing"):
        LISTING._token(forged)


def test_a_page_with_a_continuation_has_more() -> None:
    assert Page((Order("tea"),), "t").has_more
    assert not Page((Order("tea"),), None).has_more
