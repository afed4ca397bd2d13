"""What the app asks of its trigger: guarantees rest on each line of it. On every Python, without the worker."""

from __future__ import annotations

import pytest

from local.functions.app import Function, load_functions
from local.functions.retries import UNLIMITED, RetryPolicy
from local.stack.parts import ROOT


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Function:
    """The app's only function, as a host indexes it."""
    monkeypatch.setenv("COSMOS", "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;")
    monkeypatch.setenv("SERVICEBUS", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA")
    monkeypatch.setenv("COSMOS_DATABASE", "shop")
    monkeypatch.setenv("COSMOS_CONTAINER", "orders")
    monkeypatch.setenv("COSMOS_LEASE_CONTAINER", "orders-leases")
    monkeypatch.setenv("RELAY_MAX_ITEMS", "123")
    monkeypatch.setenv("RELAY_POLL_DELAY_MS", "250")
    (found,) = load_functions(ROOT)
    return found


def test_a_failed_batch_is_retried_without_end(function: Function) -> None:
    assert function.retry_policy == RetryPolicy(max_retry_count=UNLIMITED, minimum_s=1, maximum_s=60)


def test_the_trigger_begins_at_the_beginning_and_reads_what_the_settings_say(function: Function) -> None:
    assert function.trigger == {
        "direction": "IN",
        "type": "cosmosDBTrigger",
        "name": "documents",
        "connection": "COSMOS",
        "databaseName": "shop",
        "containerName": "orders",
        "leaseContainerName": "orders-leases",
        "createLeaseContainerIfNotExists": False,
        "startFromBeginning": True,
        "maxItemsPerInvocation": 123,
        "feedPollDelay": 250,
    }
