"""One client for all containers: opened once, when the first of them is needed, and closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError

from relay.backends.cosmos.containers import Containers, explaining
from relay.config.clients import Connection
from relay.config.settings import Settings
from relay.core.errors import LeaseError, ServiceError
from tests.unit.relay.test_leases import Leases, Monitored, stored

SETTINGS = Settings.from_environment(
    {
        "COSMOS": "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0a2V5;",
        "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
    }
)


class Account:
    """An account's clients, of which each is as real as what is tested here needs it.

    Attributes:
        refuses: What is raised instead of opening a client.
        containers: The containers, by their names.
        opened: Number of clients opened.
        open: How many of those that were made are not closed.
    """

    def __init__(self) -> None:
        self.refuses: BaseException | None = None
        self.containers: dict[str, Any] = {}
        self.opened = 0
        self.open = 0

    def client(self, connection: Connection) -> Client:
        assert connection == SETTINGS.in_cosmos.connection
        self.open += 1
        return Client(self)


class Client:
    def __init__(self, account: Account) -> None:
        self._account = account

    async def __aenter__(self) -> Client:
        # As the real one does: others are served in between.
        await asyncio.sleep(0)
        if self._account.refuses is not None:
            raise self._account.refuses
        self._account.opened += 1
        return self

    async def close(self) -> None:
        self._account.open -= 1

    def get_database_client(self, name: str) -> Client:
        assert (name, self._account.opened > 0) == ("outbox", True)
        return self

    def get_container_client(self, name: str) -> Any:
        return self._account.containers[name]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    account.containers = {"data": Monitored(), "leases": Leases(stored("prefix127.0.0.1_db_coll..0", 2))}
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", account.client)
    return account


async def test_one_client_serves_all_that_ask_at_once(account: Account) -> None:
    containers = Containers(SETTINGS.in_cosmos)
    assert account.opened == 0

    found = await asyncio.gather(*(containers.open(name) for name in ("data", "leases", "data")))

    assert found == [account.containers[name] for name in ("data", "leases", "data")]
    assert (account.opened, account.open) == (1, 1)


async def test_a_closed_one_is_opened_anew(account: Account) -> None:
    containers = Containers(SETTINGS.in_cosmos)
    await containers.close()
    await containers.open("data")
    await containers.close()
    await containers.close()
    assert account.open == 0

    await containers.open("data")

    assert (account.opened, account.open) == (2, 1)


@pytest.mark.parametrize("failure", [ServiceRequestError("no route"), asyncio.CancelledError()])
async def test_a_client_that_cannot_be_opened_is_closed_and_the_next_one_tried(
    account: Account, failure: BaseException
) -> None:
    containers = Containers(SETTINGS.in_cosmos)
    account.refuses = failure
    with pytest.raises(type(failure)):
        await containers.open("data")
    await containers.close()
    assert account.open == 0

    account.refuses = None
    assert await containers.open("data") is account.containers["data"]


async def test_positions_are_those_of_the_relays_own_leases(account: Account) -> None:
    assert (await Containers(SETTINGS.in_cosmos).positions()).leases == []

    own = stored("127.0.0.1_db_coll..0", 5)
    account.containers["leases"] = Leases(own, stored("prefix127.0.0.1_db_coll..0", 2))
    assert [lease.id for lease in (await Containers(SETTINGS.in_cosmos).positions()).leases] == [own["id"]]


@pytest.mark.parametrize("failure", [ServiceRequestError("no route"), OSError("no route")])
async def test_positions_that_cannot_be_read_are_an_error_that_names_the_container(
    account: Account, failure: Exception
) -> None:
    account.refuses = failure

    with pytest.raises(LeaseError, match=r"the container 'leases' could not be read: .*: no route") as raised:
        await Containers(SETTINGS.in_cosmos).positions()

    assert raised.value.__cause__ is failure


@pytest.mark.parametrize("error", [ServiceRequestError("no"), OSError("no")])
def test_what_the_sdk_or_the_network_raises_for_a_command_is_explained(error: Exception) -> None:
    with pytest.raises(ServiceError, match=r"'c' .*the rights of this identity") as raised, explaining("c"):
        raise error

    assert raised.value.__cause__ is error


def test_what_is_a_defect_is_not_explained_away() -> None:
    with pytest.raises(ZeroDivisionError), explaining("c"):
        raise ZeroDivisionError
