"""The Cosmos DB client of a command: found before it is used, closed in any case, its errors explained."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ServiceRequestError

from relay.cli.containers import open_container
from relay.cosmos import client
from relay.cosmos.client import connected
from relay.cosmos.containers import explaining
from relay.errors import ServiceError
from tests.unit.relay.test_containers import SETTINGS, Account


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account()
    monkeypatch.setattr(client, "cosmos_client", made.client)
    return made


async def test_the_account_is_found_first_and_the_client_closed_last(account: Account) -> None:
    async with connected(SETTINGS.cosmos):
        assert (account.opened, account.open) == (1, 1)

    assert account.open == 0


async def test_a_client_whose_account_cannot_be_reached_is_closed_and_the_container_named(
    account: Account,
) -> None:
    account.refuses = ServiceRequestError("no route to host")

    with pytest.raises(ServiceError, match=r"'data' cannot be read or written: .*no route to host"):
        async with open_container(SETTINGS, "quarantine"):
            pass

    assert account.open == 0


@pytest.mark.parametrize("error", [ServiceRequestError("no"), OSError("no")])
def test_what_the_sdk_or_the_network_raises_is_explained(error: Exception) -> None:
    with (
        pytest.raises(ServiceError, match="the rights of this identity") as raised,
        explaining("c"),
    ):
        raise error

    assert raised.value.__cause__ is error


def test_what_is_a_defect_is_not_explained_away() -> None:
    with pytest.raises(ZeroDivisionError), explaining("c"):
        raise ZeroDivisionError
