"""Retry policies: what may be declared, and the delays that follow."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from outbox_emulators.functions.errors import HostError
from outbox_emulators.functions.retries import RetryPolicy


def _exponential(**changed: object) -> dict[str, object]:
    return {
        "strategy": "exponential_backoff",
        "max_retry_count": "-1",
        "minimum_interval": "00:00:01",
        "maximum_interval": "00:01:00",
        **changed,
    }


def test_an_exponential_policy_grows_from_the_minimum_to_the_maximum() -> None:
    policy = RetryPolicy.from_settings(_exponential())
    assert policy is not None
    delays = list(islice(policy.delays(random.Random(7)), 12))
    assert delays[0] == 1.0
    for exponent, delay in enumerate(delays[1:6]):
        assert 1 + 0.8 * 2**exponent <= delay <= 1 + 1.2 * 2**exponent
    assert delays[-3:] == [60.0, 60.0, 60.0]


def test_a_fixed_policy_waits_the_same_each_time() -> None:
    policy = RetryPolicy.from_settings(
        {"strategy": "fixed_delay", "max_retry_count": "3", "delay_interval": "00:00:05"}
    )
    assert policy is not None
    assert list(islice(policy.delays(random.Random()), 3)) == [5.0, 5.0, 5.0]
    assert [policy.exhausted(retries) for retries in range(5)] == [False, False, False, True, True]


def test_an_unlimited_policy_is_never_exhausted() -> None:
    policy = RetryPolicy.from_settings(_exponential())
    assert policy is not None
    assert not policy.exhausted(10**9)


def test_a_minimum_of_zero_retries_at_once_for_ever() -> None:
    policy = RetryPolicy.from_settings(_exponential(minimum_interval="00:00:00"))
    assert policy is not None
    assert set(islice(policy.delays(random.Random()), 2_000)) == {0.0}


def test_no_declaration_is_no_policy() -> None:
    assert RetryPolicy.from_settings(None) is None


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (_exponential(max_retry_count="many"), "max_retry_count"),
        (_exponential(max_retry_count="-2"), "max_retry_count"),
        (_exponential(minimum_interval="1.00:00:00"), "minimum_interval"),
        (_exponential(minimum_interval="5"), "minimum_interval"),
        (_exponential(minimum_interval="00:02:00"), "minimum_interval is greater"),
        (_exponential(strategy="linear"), "linear"),
        ({"strategy": "fixed_delay", "max_retry_count": "1"}, "delay_interval"),
    ],
)
def test_what_the_worker_or_the_host_would_refuse_is_refused(declared: dict[str, object], named: str) -> None:
    with pytest.raises(HostError, match=named):
        RetryPolicy.from_settings(declared)
