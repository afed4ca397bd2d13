"""Reading an SQL outbox without giving positions, and the rights for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from outbox_relay.changefeed import AsyncConsumer, AsyncFeed, setup_feed_async
from outbox_relay.changefeed.statements import AsyncSession, Statement, run_async
from outbox_relay.changefeed.tables import Tables
from outbox_relay.operator.backends.sql.backlog import scan
from outbox_relay.operator.backends.sql.check import check
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from outbox_relay.operator.console.model import Stage
from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.ports import Sources
from relay.backends.findings import Level
from relay.backends.sql.database import Database
from relay.backends.sql.quarantine import SqlItems
from relay.config.settings import CONSUMER
from relay.core.errors import ServiceError
from relay.core.events import Event
from relay.routes.selection import BY_DEFAULT
from tests.support import sql_outbox
from tests.support.console import InMemoryTopic
from tests.support.outbox import event
from tests.support.postgresql import PostgresServer
from tests.support.sql_outbox import TABLE, event_of, provisioned, sql_settings

OUTBOX, FEED, CLAIM, STATE = (f'changefeed."{part}:{TABLE}"' for part in ("outbox", "feed", "claim", "state"))


@pytest.fixture
async def session(postgres_database: str) -> AsyncIterator[AsyncSession]:
    opened = await provisioned(postgres_database)
    yield opened
    await opened.close()


async def count(session: AsyncSession, table: str) -> int:
    return int((await session.execute(Statement(f"select count(*) from {table}"))).rows[0][0])


async def test_events_without_a_position_are_shown_and_get_none(
    session: AsyncSession, postgres_database: str
) -> None:
    settings = sql_settings(postgres_database)
    writer = sql_outbox.SqlOutbox(session)
    await writer.commit(event("a", "k"), event("b", "k"))
    outbox = SqlOutbox(settings, from_beginning=True)
    observer = Observer(Sources(outbox, InMemoryTopic(), SqlItems(Database(settings))))
    async with observer:
        snapshot = await observer.look()
        assert (snapshot.flow.committed, snapshot.flow.waiting, snapshot.problems) == (2, 2, ())
        assert [each.id for each in (await observer.timeline("k", 9, data=False)).events] == ["a", "b"]
        assert (await count(session, OUTBOX), await count(session, FEED), await count(session, STATE)) == (2, 0, 0)

        # The relay reads them, which gives them positions, and passes the first.
        first = (await AsyncFeed(session, TABLE).read(0)).entries[0]
        await session.execute(
            Statement(
                f"insert into {CLAIM} (consumer, shard_id, last_ulid) values ('relay', 0, ?::uuid)",
                (first.ulid.hex(),),
            )
        )
        await writer.commit(event("c", "k"))
        snapshot = await observer.look()

        assert (snapshot.flow.committed, snapshot.flow.waiting, snapshot.flow.published) == (3, 2, 1)
        timeline = await observer.timeline("k", 9, data=True)
        assert [(each.id, each.stage) for each in timeline.events] == [
            ("a", Stage.PUBLISHED),
            ("b", Stage.COMMITTED),
            ("c", Stage.COMMITTED),
        ]
        assert all(each.data for each in timeline.events)


@pytest.mark.parametrize("hint", ["infinity", "-infinity", "4713-01-01 BC", "294276-12-31"])
async def test_an_event_with_a_time_that_python_does_not_have_is_shown_and_checked(
    session: AsyncSession, postgres_database: str, hint: str
) -> None:
    settings = sql_settings(postgres_database)
    await sql_outbox.SqlOutbox(session).commit(event("a", "k"), event("b", "k"))
    await session.execute(Statement(f"update {OUTBOX} set time_hint = '{hint}' where id = 'a'"))

    async with Observer(Sources(SqlOutbox(settings), InMemoryTopic(), SqlItems(Database(settings)))) as observer:
        snapshot = await observer.look()
        timeline = await observer.timeline("k", 9, data=False)
    checked = await check(settings)
    scanned = await scan(settings)

    assert (snapshot.flow.waiting, [each.id for each in timeline.events]) == (2, ["a", "b"])
    assert [each.what for each in checked if each.level is Level.ERROR and "no process" not in each.what] == []
    assert scanned.data["scannedRows"] == 2


async def test_an_event_whose_transaction_ends_late_is_seen_all_the_same(
    session: AsyncSession, postgres_database: str
) -> None:
    outbox = SqlOutbox(sql_settings(postgres_database), from_beginning=True)
    # It draws its number first, and commits last.
    number = "insert into {} (shard_id, order_sequence, id) overriding system value values (0, {}, '{}')"
    for identifier in ("early", "late"):
        await session.execute(
            Statement(
                "insert into outbox.domain_event (id, partition_key, data) values (?, 'k', '{}')", (identifier,)
            )
        )
    await session.execute(Statement(number.format(OUTBOX, 8, "early")))
    assert [each.id for each in await outbox.news(10)] == ["early"]
    await session.execute(Statement(number.format(OUTBOX, 7, "late")))

    assert [each.id for each in await outbox.news(10)] == ["late"]
    assert await outbox.news(10) == []
    await outbox.close()


async def test_events_with_uuids_for_ids_and_keys_are_found(session: AsyncSession, postgres_database: str) -> None:
    typed = "create table outbox.typed (id uuid primary key, partition_key uuid not null, data json not null)"
    await session.execute(Statement(typed))
    await setup_feed_async(session, "outbox.typed", roles=False)
    key, *ids = (str(UUID(int=number)) for number in (1, 2, 3))
    for identifier in ids:
        insert = """insert into outbox.typed values (?, ?, '{"action": "Named"}')"""
        await session.execute(Statement(insert, (identifier, key)))
        await run_async(session, Tables(session.dialect, "outbox.typed").append(0, identifier, ["id"]))
    outbox = SqlOutbox(replace(sql_settings(postgres_database), feed="outbox.typed"))
    (claim,) = await (consumer := AsyncConsumer(session, "outbox.typed", CONSUMER)).claims([0])
    entries = (await AsyncFeed(session, "outbox.typed").read(0)).entries
    await consumer.store(claim, entries[-1].ulid)
    first = event_of(entries[0], 0, BY_DEFAULT)

    found = await outbox.find(key, ids[0])
    assert found is not None
    assert (found.type, found.passed, len(found.places)) == ("domainEvent", True, 1)
    assert await outbox.find(ids[0], ids[0]) is None
    assert [each.id for each in (await outbox.of_key(key, 9))[0]] == ids
    assert (await outbox.data(key, ids)).keys() == set(ids)
    assert isinstance(first, Event)
    assert await outbox.passed_behind(first) == [ids[1]]
    await outbox.close()


async def test_the_rights_that_are_missing_are_named_as_grants_that_suffice(
    session: AsyncSession, postgres_database: str, postgres_server: PostgresServer
) -> None:
    await sql_outbox.SqlOutbox(session).commit(event("a", "k"))
    await session.execute(Statement("create role console login"))
    name = postgres_database.partition("?")[0].rpartition("/")[2]
    outbox = SqlOutbox(sql_settings(postgres_server.url(name, "console")), from_beginning=True)
    with pytest.raises(ServiceError) as raised:
        await outbox.news(10)
    grants = str(raised.value).rpartition("role needs: ")[2]

    for grant in grants.replace("<role>", "console").split(";"):
        await session.execute(Statement(grant))

    assert [each.id for each in await outbox.news(10)] == ["a"]
    assert await outbox.positions()
    items = SqlItems(Database(sql_settings(postgres_server.url(name, "console"))))
    assert not (await items.holds()).parked
    await items.close()
    await outbox.close()
