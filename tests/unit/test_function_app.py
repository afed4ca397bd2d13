"""What the app asks of its trigger: guarantees rest on each line of it. On every Python, without the worker."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The app's only function, as azure.functions describes it to the worker."""
    monkeypatch.setenv("COSMOS", "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;")
    monkeypatch.setenv("SERVICEBUS", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA")
    monkeypatch.setenv("COSMOS_DATABASE", "shop")
    monkeypatch.setenv("COSMOS_CONTAINER", "orders")
    monkeypatch.setenv("COSMOS_LEASE_CONTAINER", "orders-leases")
    monkeypatch.setenv("RELAY_MAX_ITEMS", "123")
    monkeypatch.setenv("RELAY_POLL_DELAY_MS", "250")
    monkeypatch.delitem(sys.modules, "function_app", raising=False)
    (found,) = importlib.import_module("function_app").app.get_functions()
    yield found
    del sys.modules["function_app"]


def test_a_failed_batch_is_retried_without_end(function: Any) -> None:
    policy = function.get_settings_dict("retry_policy")

    assert policy["max_retry_count"] == "-1"
    assert policy["strategy"] == "exponential_backoff"
    assert (policy["minimum_interval"], policy["maximum_interval"]) == ("00:00:01", "00:01:00")


def test_the_trigger_begins_at_the_beginning_and_reads_what_the_settings_say(function: Any) -> None:
    (trigger,) = function.get_dict_repr()["bindings"]

    del trigger["direction"]
    assert trigger == {
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
