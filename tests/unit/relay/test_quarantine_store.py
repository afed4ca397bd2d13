"""Which outbox and which store the commands use, and for how long."""

from __future__ import annotations

import pytest

from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.backends.cosmos.reader import CosmosOutbox
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from outbox_relay.operator.cli.quarantine_admin import open_records
from relay.backends.cosmos.quarantine import CosmosItems
from relay.backends.sql.quarantine import SqlItems
from relay.config.settings import Settings
from relay.core.errors import StoreError, UsageError
from relay.quarantine.items import Filter
from tests.unit.relay.test_containers import SETTINGS, Account
from tests.unit.relay.test_cosmos_items import Container, refusal

SERVICEBUS = "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ=="
COSMOS = "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0a2V5;"


@pytest.mark.parametrize(("source", "kind"), [("sql", SqlItems), ("cosmos", CosmosItems)])
def test_the_store_is_where_the_outbox_is(source: str, kind: type) -> None:
    both = Settings.from_environment({"COSMOS": COSMOS, "SQL": "postgresql://h/d", "SERVICEBUS": SERVICEBUS})

    assert isinstance(open_backend(both, source).open_store(), kind)


@pytest.mark.parametrize(("source", "kind"), [("sql", SqlOutbox), ("cosmos", CosmosOutbox)])
def test_the_outbox_is_the_one_that_was_chosen(source: str, kind: type) -> None:
    both = Settings.from_environment({"COSMOS": COSMOS, "SQL": "postgresql://h/d", "SERVICEBUS": SERVICEBUS})

    assert isinstance(open_backend(both, source).open_outbox(), kind)
    with pytest.raises(UsageError, match="COSMOS and SQL are both set"):
        open_backend(both)


async def test_the_connection_of_a_canary_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.containers["data"] = Container()
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", account.client)

    async with open_backend(SETTINGS).open_canary():
        assert account.open == 1

    assert account.open == 0


async def test_the_connection_of_a_command_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.containers["quarantine"] = Container()
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", account.client)

    async with open_records(open_backend(SETTINGS)) as records:
        assert account.opened == 0
        assert len(await records.find(Filter())) == 5
        assert account.open == 1

    assert account.open == 0


async def test_a_command_that_fails_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.containers["quarantine"] = Container(refusal(403))
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", account.client)

    async def command() -> None:
        async with open_records(open_backend(SETTINGS)) as records:
            await records.find(Filter())

    with pytest.raises(StoreError, match="the container 'quarantine' cannot be read or written"):
        await command()

    assert account.open == 0
