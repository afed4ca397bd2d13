"""`python -m relay quarantine` where the outbox is in an SQL database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from changefeed import connect_async
from relay import holds
from relay.events import Reason
from relay.quarantine.quarantine import StoredQuarantine
from relay.sql.database import Database
from relay.sql.install import install
from relay.sql.quarantine import SqlItems
from tests.support.operators import relay_command
from tests.support.outbox import event, events, rejected
from tests.support.sql_outbox import sql_settings

SERVICEBUS = "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ=="


@pytest.fixture
async def environment(postgres_database: str) -> dict[str, str]:
    session = await connect_async(postgres_database)
    await install(session)
    await session.close()
    return {"SQL": postgres_database, "SERVICEBUS": SERVICEBUS}


@pytest.fixture
async def items(environment: dict[str, str]) -> AsyncIterator[SqlItems]:
    items = SqlItems(Database(sql_settings(environment["SQL"])))
    yield items
    await items.close()


async def test_what_the_relay_has_stored_is_listed_shown_and_discarded(
    environment: dict[str, str], items: SqlItems
) -> None:
    quarantine = StoredQuarantine(items)
    first, second = events("k", 2)
    stored = [*rejected(Reason.MESSAGE_REFUSED, first), *rejected(Reason.KEY_PARKED, second, first=1)]
    await quarantine.store(stored, "i1", park=True)
    await items.create(holds.order("other", "e1"))

    listed = await relay_command(environment, "quarantine", "list", "--json")
    ids = [record["id"] for record in listed.json["records"]]
    shown = await relay_command(environment, "quarantine", "show", ids[0][:12], "--json")
    one = await relay_command(environment, "quarantine", "discard", ids[0], "--yes", "--json")
    order = listed.json["orders"][0]["id"]
    rest = await relay_command(environment, "quarantine", "discard", ids[1], order, "--yes", "--json")

    assert [record["documentId"] for record in listed.json["records"]] == ["k-0", "k-1"]
    assert [parked["partitionKey"] for parked in listed.json["parked"]] == ["k"]
    assert shown.json["record"]["document"] == first
    assert (one.code, one.json["unparked"]) == (0, [])
    assert (rest.code, rest.json["unparked"], rest.json["withdrawn"]) == (0, ["k"], [order])
    assert not (await quarantine.holds()).parked


async def test_a_document_of_any_size_is_kept_in_one_record(environment: dict[str, str], items: SqlItems) -> None:
    large = event("large", "k", text="\U0001f600" * 1_000_000)
    await StoredQuarantine(items).store(rejected(Reason.MESSAGE_TOO_LARGE, large), "i1")

    listed = await relay_command(environment, "quarantine", "list", "--json")
    (record,) = listed.json["records"]
    shown = await relay_command(environment, "quarantine", "show", record["id"], "--json")

    assert record["documentParts"] == 0
    assert shown.json["record"]["document"] == large


async def test_without_its_table_a_command_says_what_to_do(postgres_database: str) -> None:
    run = await relay_command({"SQL": postgres_database, "SERVICEBUS": SERVICEBUS}, "quarantine", "list")

    assert run.code == 3
    assert "the table relay.item cannot be read or written" in run.err
    assert "python -m relay install" in run.err
