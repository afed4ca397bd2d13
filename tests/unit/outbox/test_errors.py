"""What errors say, and how an API answers with them."""

from __future__ import annotations

import re

import pytest

from outbox import (
    BatchTooLarge,
    CommitUncertain,
    Conflict,
    InvalidContinuation,
    InvalidDocument,
    MixedPartitions,
    NotFound,
    NotModified,
    OutboxError,
    PreconditionFailed,
    Refused,
    ServiceRefused,
    Throttled,
    Unavailable,
    errors,
)

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
    assert all(kind.__module__ == "outbox.errors" for kind in kinds)


def test_a_custom_error_has_status_500_and_needs_no_advice() -> None:
    class Odd(OutboxError):
        pass

    Odd.__doc__ = None

    assert (str(Odd(WHAT)), Odd.http_status) == (WHAT, 500)


def test_the_limits_are_those_of_a_transactional_batch() -> None:
    assert (errors.MAX_OPERATIONS, errors.MAX_BATCH_BYTES) == (100, 2_097_152)
