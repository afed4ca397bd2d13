"""The table relay.item in PostgreSQL: what the contract of a store leaves open, and its statements in T-SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlfluff.core import Linter

from outbox_relay.changefeed import ChangefeedError, DatabaseError, connect_async
from outbox_relay.changefeed.statements import AsyncSession, Result, Statement
from outbox_relay.operator.backends.sql.install import install, migrations
from relay.backends.sql import quarantine
from relay.backends.sql.database import Database
from relay.backends.sql.quarantine import SqlItems
from relay.core import holds
from relay.core.documents import SourceDocument
from relay.core.errors import StoreError
from relay.core.events import Reason, Rejected
from relay.core.place import Place
from relay.quarantine.items import BatchFailed, Create, Delete, Filter, ItemExists, Touch, in_order
from relay.quarantine.record import record_of
from tests.support.outbox import plain
from tests.support.sql_outbox import sql_settings

BOUND_S = 20


@pytest.fixture
async def owner(postgres_database: str) -> AsyncIterator[AsyncSession]:
    """A session of the database's owner, with the table."""
    session = await connect_async(postgres_database)
    await install(session)
    yield session
    await session.close()


@pytest.fixture
async def database(postgres_database: str, owner: AsyncSession) -> AsyncIterator[Database]:
    database = Database(sql_settings(postgres_database))
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> SqlItems:
    return SqlItems(database)


def item(identifier: str, key: str = "k", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "t", **more}


async def column(session: AsyncSession, sql: str, *parameters: object) -> list[Any]:
    return [row[0] for row in (await session.execute(Statement(sql, parameters))).rows]


# the table


async def test_installing_again_changes_nothing(owner: AsyncSession, store: SqlItems) -> None:
    await store.create(item("a"))

    await install(owner)

    assert (await store.read("a", "k")).item == item("a")


async def test_two_processes_may_install_one_after_the_other_and_a_role_needs_few_rights(
    owner: AsyncSession, postgres_database: str
) -> None:
    await owner.execute(Statement("create role quarantine_keeper login"))
    await owner.execute(Statement("grant usage on schema relay to quarantine_keeper"))
    await owner.execute(Statement("grant select, insert, update, delete on relay.item to quarantine_keeper"))
    items = SqlItems(Database(sql_settings(postgres_database.replace("postgres@", "quarantine_keeper@"))))

    await items.create(holds.parked_marker_item("k", "r"))
    await items.batch("k", [Touch(holds.PARKED_ID), Create(item("a"))])
    await items.delete("a", "k")

    assert (await items.holds()).parked.keys() == {"k"}
    await items.close()


async def test_a_server_that_cannot_be_reached_is_an_error_that_shows_no_password() -> None:
    items = SqlItems(Database(sql_settings("postgresql://me:secret@127.0.0.1:1/nowhere")))

    with pytest.raises(StoreError, match="cannot be read or written") as raised:
        await items.holds()

    assert "secret" not in str(raised.value)
    await items.close()


# text


@pytest.mark.parametrize("key", ["\ud83d", "\ude00\ud83d", "k" * 100_000])
async def test_a_key_may_have_any_characters_and_length(store: SqlItems, key: str) -> None:
    record = record_of(Rejected(plain({"id": key, "partitionKey": key}), Reason.MESSAGE_REFUSED, key), "i1")
    await store.create(record)

    (found,) = await store.summaries(Filter(partition_key=key))

    assert (found.partition_key, found.document_id, found.detail) == (key, key, key)
    assert (await store.read(record["id"], key)).item == record


async def test_a_value_is_read_as_it_was_created_by_another_process(
    store: SqlItems, postgres_database: str
) -> None:
    created = item("a", n=1.0, big=2**70, none=None, text="\0\ud83dé", deep=[[{"a": [True]}]])
    await store.create(created)
    others = SqlItems(Database(sql_settings(postgres_database)))

    assert (await others.read("a", "k")).item == created
    await others.close()


async def test_an_id_may_end_with_a_space(store: SqlItems) -> None:
    for identifier in ("a", "a ", " ", ""):
        await store.create(item(identifier, n=identifier))

    assert [(await store.read(identifier, "k")).item["n"] for identifier in ("a", "a ", " ", "")] == [
        "a",
        "a ",
        " ",
        "",
    ]


# order


async def test_records_of_an_sql_feed_are_in_the_order_of_the_feed(store: SqlItems) -> None:
    ulids = ["01JD0000000000000000000009", "01JD000000000000000000000Z", "01JD0000000000000000000010"]
    for number in (2, 0, 1):
        fields = {"id": f"e{number}", "partitionKey": "k"}
        document = SourceDocument({}, fields, Place(ulid=ulids[number], shard=0))
        await store.create(record_of(Rejected(document, Reason.MESSAGE_REFUSED, ""), "i1"))

    found = in_order(await store.summaries(Filter()))

    assert [summary.document_id for summary in found] == ["e0", "e1", "e2"]
    assert [summary.committed for summary in found] == [(ulid, 0) for ulid in ulids]


async def test_the_order_of_arrival_does_not_rest_on_the_index(store: SqlItems, owner: AsyncSession) -> None:
    await owner.execute(Statement("drop index relay.ix_item_type"))
    for position in (1, 2, 0):
        document = {"id": f"e{position}", "partitionKey": f"k{position}"}
        record = record_of(Rejected(plain(document), Reason.MESSAGE_REFUSED, "", position), "i1")
        await store.create(record | {"quarantinedAt": f"2026-02-0{1 + position // 2}"})

    assert [found.document_id for found in await store.summaries(Filter())] == ["e0", "e1", "e2"]
    assert [found.document_id for found in await store.summaries(Filter(), limit=2)] == ["e0", "e1"]


# transactions


async def test_an_item_that_a_batch_creates_twice_exists_already(store: SqlItems) -> None:
    with pytest.raises(BatchFailed) as raised:
        await store.batch("k", [Create(item("a")), Create(item("b")), Create(item("a"))])

    assert (raised.value.index, type(raised.value.error)) == (2, ItemExists)
    assert await store.of_type("t") == []


async def test_operations_at_the_same_time_do_not_end_up_in_one_another_s_transaction(store: SqlItems) -> None:
    await store.create(item("there"))

    results = await asyncio.gather(
        *(store.batch("k", [Create(item(f"a{number}")), Create(item("there"))]) for number in range(5)),
        *(store.create(item(f"b{number}")) for number in range(5)),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [BatchFailed] * 5 + [type(None)] * 5
    assert {found["id"] for found in await store.of_type("t")} == {"there", "b0", "b1", "b2", "b3", "b4"}


async def test_two_processes_that_create_the_same_item_end_with_one(
    store: SqlItems, postgres_database: str
) -> None:
    others = SqlItems(Database(sql_settings(postgres_database)))
    for number in range(20):
        batches = [
            [Create(item(f"{number}", by=process)), Create(item(f"{number}-{process}"))] for process in (0, 1)
        ]

        results = await asyncio.gather(
            store.batch("k", batches[0]), others.batch("k", batches[1]), return_exceptions=True
        )

        winner = (await store.read(f"{number}", "k")).item["by"]
        assert results[winner] is None
        assert isinstance(failed := results[1 - winner], BatchFailed)
        assert (failed.index, type(failed.error)) == (0, ItemExists)
    assert len(await store.of_type("t")) == 40
    await others.close()


async def test_a_batch_that_is_cancelled_leaves_nothing_behind(store: SqlItems, owner: AsyncSession) -> None:
    await store.create(item("marker"))
    await owner.execute(Statement("begin"))
    await owner.execute(Statement("lock table relay.item in access exclusive mode"))
    batch = asyncio.create_task(store.batch("k", [Touch("marker"), Create(item("a"))]))
    waits = "select count(*) from pg_locks where not granted and relation = 'relay.item'::regclass"
    async with asyncio.timeout(BOUND_S):
        while await column(owner, waits) == [0]:
            await asyncio.sleep(0)

    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    await owner.execute(Statement("rollback"))

    await store.create(item("b"))
    assert {found["id"] for found in await store.of_type("t")} == {"marker", "b"}
    assert await column(owner, "select count(*) from relay.item") == [2]


async def test_a_session_that_was_lost_is_opened_again(store: SqlItems, owner: AsyncSession) -> None:
    await store.create(item("a"))
    await owner.execute(
        Statement(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where pid <> pg_backend_pid() "
            "and datname = current_database()"
        )
    )

    with pytest.raises(StoreError):
        await store.batch("k", [Delete("a")])

    assert (await store.read("a", "k")).item == item("a")


class Unending:
    """A session on which no transaction can be ended, as where the server does not answer any more."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self.closed = False

    async def execute(self, statement: Statement, /) -> Result:
        if statement.sql in (quarantine.COMMIT, quarantine.ROLLBACK):
            raise DatabaseError("no answer")
        return await self._session.execute(statement)

    async def close(self) -> None:
        self.closed = True
        await self._session.close()


async def test_a_session_whose_transaction_may_be_open_is_not_used_again(
    store: SqlItems, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    unending = Unending(await database.connect())

    async def opened(*_: Any) -> Any:
        return unending

    with monkeypatch.context() as patch:
        patch.setattr(database, "connect", opened)
        with pytest.raises(StoreError):
            await store.batch("k", [Create(item("a"))])

    assert unending.closed
    await store.create(item("b"))
    assert [found["id"] for found in await store.of_type("t")] == ["b"]


async def test_another_error_of_an_insert_is_not_taken_for_an_item_that_is_there(
    store: SqlItems, owner: AsyncSession
) -> None:
    await owner.execute(Statement("alter table relay.item add constraint no_b check (id <> 'b')"))

    with pytest.raises(StoreError, match="no_b") as alone:
        await store.create(item("b"))
    with pytest.raises(StoreError, match="no_b") as in_batch:
        await store.batch("k", [Create(item("a")), Create(item("b"))])

    assert type(alone.value) is type(in_batch.value) is StoreError
    assert isinstance(alone.value.__cause__, ChangefeedError)
    assert await store.of_type("t") == []


# T-SQL


CHOICE = (quarantine.WITH_REASON, quarantine.WITH_KEY, quarantine.WITH_ID, quarantine.IN_ORDER, quarantine.AT_MOST)
STATEMENTS = [
    quarantine.INSERT,
    quarantine.READ,
    quarantine.EXISTS,
    quarantine.TOUCH,
    quarantine.DELETE,
    quarantine.DELETE_UNCHANGED,
    quarantine.HOLDS,
    quarantine.OF_TYPE + quarantine.WITH_KEY,
    quarantine.COUNT + quarantine.WITH_REASON,
    quarantine.SUMMARIES + "".join(CHOICE),
    quarantine.BEGIN,
    quarantine.COMMIT,
    quarantine.ROLLBACK,
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_is_one_of_t_sql(statement: str) -> None:
    parsed = Linter(dialect="tsql").parse_string(statement.replace("?", "@p") + ";\n")

    assert [str(violation) for violation in parsed.violations] == []


@pytest.mark.parametrize(("folder", "dialect"), [("sqlserver", "tsql"), ("postgresql", "postgres")])
def test_the_migrations_are_of_their_dialect(folder: str, dialect: str) -> None:
    files = migrations(folder)

    assert [file.name for file in files] == ["0001_item.sql"]
    for file in files:
        parsed = Linter(dialect=dialect).parse_string(file.read_text(encoding="utf-8"))
        assert [str(violation) for violation in parsed.violations] == []


@pytest.mark.parametrize(
    ("folder", "collation"), [("postgresql", '"C"'), ("sqlserver", "Latin1_General_100_BIN2")]
)
def test_what_items_are_found_and_sorted_by_is_compared_exactly(folder: str, collation: str) -> None:
    (file,) = migrations(folder)
    lines = [line.replace(",", "").split() for line in file.read_text(encoding="utf-8").splitlines() if line]
    columns = {words[0]: words for words in lines if words[1:] and "char" in words[1]}

    for name in ("key_digest", "id", "etag", "type", "reason", "quarantined_at"):
        assert columns[name][2:4] == ["collate", collation], name


def test_both_tables_have_the_same_columns() -> None:
    columns = {}
    for folder in ("postgresql", "sqlserver"):
        (file,) = migrations(folder)
        table = file.read_text(encoding="utf-8").partition("relay.item (\n")[2].partition("constraint")[0]
        lines = [line.strip() for line in table.splitlines()]
        columns[folder] = [line.split()[0] for line in lines if line and not line.startswith("--")]

    assert columns["postgresql"] == columns["sqlserver"]
    assert set(quarantine.INSERT.partition("(")[2].partition(")")[0].split(", ")) | {"touched_at"} == set(
        columns["postgresql"]
    )
