"""`python -m relay quarantine` where the outbox is in an SQL database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock

import pytest

from outbox_relay.changefeed import connect_async
from outbox_relay.changefeed.statements import AsyncSession, Result, Statement
from outbox_relay.operator.backends.sql.install import install
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from relay.backends.sql.database import Database
from relay.backends.sql.quarantine import MAX_BODY, SqlItems
from relay.core import holds
from relay.core.events import Reason
from relay.quarantine.items import Filter
from relay.quarantine.quarantine import StoredQuarantine
from relay.quarantine.record import PART_TYPE
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


class Counting:
    """A session that measures the parameters of each statement."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def execute(self, statement: Statement, /) -> Result:
        self.sizes.append(sum(len(each) for each in statement.parameters if isinstance(each, str)))
        return await self._session.execute(statement)


@pytest.mark.parametrize("text", ["x" * 5_000_000, "\U0001f600" * 1_000_000, "\0" * 1_000_000])
async def test_no_statement_stores_more_than_a_bound_however_large_the_event_is(
    environment: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time of a call does not grow with the event, as its bytes do not.
    database = Database(sql_settings(environment["SQL"]))
    counting = Counting(await database.connect())
    monkeypatch.setattr(database, "connect", AsyncMock(return_value=counting))
    items = SqlItems(database)
    large = {**events("k", 1)[0], "data": {"action": "A", "text": text}}
    (record,) = rejected(Reason.MESSAGE_REFUSED, large)

    for _ in range(2):
        await StoredQuarantine(items).store([record], "i1", park=True)

    (summary,) = await QuarantineAdmin(items).find(Filter())
    document = await QuarantineAdmin(items).document(summary)
    await QuarantineAdmin(items).remove(summary)
    assert document is not None
    assert document.stored["data"]["text"] == text
    assert max(counting.sizes) < MAX_BODY + 1000
    assert await items.of_type(PART_TYPE) == []
    await items.close()


async def test_what_the_relay_has_stored_is_listed_shown_and_discarded(
    environment: dict[str, str], items: SqlItems
) -> None:
    quarantine = StoredQuarantine(items)
    first, second = events("k", 2)
    stored = [*rejected(Reason.MESSAGE_REFUSED, first), *rejected(Reason.KEY_PARKED, second, first=1)]
    await quarantine.store(stored, "i1", park=True)
    await items.create(holds.order_item("other", "e1"))

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


async def test_a_document_of_any_size_is_listed_and_shown_as_one_record(
    environment: dict[str, str], items: SqlItems
) -> None:
    large = event("large", "k", text="\U0001f600" * 1_000_000)
    await StoredQuarantine(items).store(rejected(Reason.MESSAGE_TOO_LARGE, large), "i1")

    listed = await relay_command(environment, "quarantine", "list", "--json")
    (record,) = listed.json["records"]
    shown = await relay_command(environment, "quarantine", "show", record["id"], "--json")

    assert (record["documentParts"] > 0, record["documentId"]) == (True, "large")
    assert shown.json["record"]["document"] == large


async def test_without_its_table_a_command_says_what_to_do(postgres_database: str) -> None:
    run = await relay_command({"SQL": postgres_database, "SERVICEBUS": SERVICEBUS}, "quarantine", "list")

    assert run.code == 3
    assert "the table relay.item cannot be read or written" in run.err
    assert "python -m relay install" in run.err
