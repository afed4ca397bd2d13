"""The failures of Cosmos DB after which a host tries again."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.cosmos.exceptions import CosmosHttpResponseError

from outbox_emulators.functions.errors import is_transient

answered: Any = CosmosHttpResponseError  # its constructor has no annotations


@pytest.mark.parametrize("status", [408, 410, 429, 449, 500, 503])
def test_what_the_service_may_answer_otherwise_next_time_is_transient(status: int) -> None:
    assert is_transient(answered(status, "later"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412])
def test_what_the_app_or_its_settings_caused_is_not(status: int) -> None:
    assert not is_transient(answered(status, "no"))


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ServiceRequestError("no connection"), True),
        (ServiceResponseError("cut"), True),
        (ClientAuthenticationError("no credential"), False),
    ],
)
def test_a_connection_may_come_back_and_a_credential_does_not(error: AzureError, transient: bool) -> None:
    assert is_transient(error) is transient
