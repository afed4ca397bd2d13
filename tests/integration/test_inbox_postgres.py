"""`PostgresStore` and `SqlAlchemyStore` beyond the contract of a store: concurrency, faults and misuse."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from outbox_relay import inbox
from outbox_relay.inbox.parking import Cause, Kept, ParkedMessage
from outbox_relay.inbox.stores.sql.dialects import Postgres, Result, Statement, run_async
from outbox_relay.inbox.stores.sql.parking import Parked
from outbox_relay.inbox.stores.sql.recording import migrations
from tests.support.inbox_stores import Harness, InPostgres, InSqlAlchemy, gap, handle, message, pool_of
from tests.support.pages import ROOT
from tests.support.postgresql import PostgresServer
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S


@pytest.fixture
async def harness(postgres_database: str) -> AsyncIterator[InPostgres]:
    async with pool_of(postgres_database) as pool:
        yield InPostgres(pool)


async def open_transactions(url: str) -> int:
    """Number of other connections of the database that are in a transaction."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
        query = (
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and state like 'idle in transaction%'"
        )
        row = await (await owner.execute(query)).fetchone()
        assert row is not None
        return int(row[0])


async def test_blocks_of_different_keys_run_at_the_same_time(harness: InPostgres) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        meeting = asyncio.Barrier(3)

        async def block(key: str) -> None:
            async with harness.store.once(message("a", 1, key)) as arrival:
                await harness.effect(arrival, key)
                await meeting.wait()

        await asyncio.gather(*(block(key) for key in "abc"))
    assert sorted(await harness.effects()) == ["a", "b", "c"]


async def waits_for_a_lock(url: str) -> None:
    """Until a connection of the database waits for a lock."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner, asyncio.timeout(WATCHDOG_S):
        query = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        while await (await owner.execute(query)).fetchone() is None:
            await look_again()


async def test_late_events_of_an_entity_that_come_at_once_leave_the_gaps_that_they_should(
    harness: InPostgres, postgres_database: str
) -> None:
    """A holder whose lock was lost and the next one, with different events of one gap."""
    for number in (1, 5):
        await handle(harness, f"e{number}", number)

    async with harness.store.once(message("e3", 3)):
        other = asyncio.create_task(handle(harness.another(), "e2", 2))
        await waits_for_a_lock(postgres_database)

    assert await other == inbox.Arrival(first=True, late=True, was_missing=True)
    assert await harness.store.gaps() == [gap("k", 4, 4)]


LEVELS = ["read committed", "repeatable read", "serializable"]


def pool_at(level: str, url: str) -> AbstractAsyncContextManager[AsyncConnectionPool[Any]]:
    """A pool whose transactions have an isolation level."""
    options = f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    return pool_of(url, kwargs={"options": options})


@pytest.mark.parametrize("level", LEVELS)
async def test_at_each_isolation_level_a_message_has_one_effect(postgres_database: str, level: str) -> None:
    async with pool_at(level, postgres_database) as pool:
        harness = InPostgres(pool)
        await harness.store.prepare()

        async def delivered(identifier: str, number: int) -> None:
            while True:  # as the receiver does after an error
                try:
                    await handle(harness, identifier, number)
                except psycopg.errors.SerializationFailure:
                    continue
                return

        async with asyncio.timeout(WATCHDOG_S):
            await asyncio.gather(*(delivered(f"e{index % 4}", index % 4) for index in range(16)))
        assert sorted(await harness.effects()) == ["e0", "e1", "e2", "e3"]


def parked(identifier: str, number: int, key: str = "k") -> ParkedMessage:
    return ParkedMessage.of(replace(message(identifier, number, key), sequence_number=number))


@pytest.mark.parametrize("level", LEVELS)
async def test_at_each_isolation_level_what_is_set_aside_meanwhile_is_handed_over(
    postgres_database: str, level: str
) -> None:
    async with pool_at(level, postgres_database) as pool:
        store = inbox.PostgresStore(pool.connection)
        await store.park(parked("e1", 1), Cause("poison"))
        await store.release("events", "k")
        claim = await store.claim("events", timedelta(minutes=1))
        assert claim is not None
        first = await store.next(claim)

        async def following() -> ParkedMessage | None:
            while True:  # as the receiver does after an error
                try:
                    return await store.next(claim, first)
                except psycopg.errors.SerializationFailure:
                    continue

        async with store._transaction() as connection:
            setting_aside = Parked(store._recording).set_aside(parked("e2", 2))
            await run_async(partial(store._execute, connection), setting_aside)
            following_it = asyncio.create_task(following())
            await waits_for_a_lock(postgres_database)

        found = await following_it
        assert found is not None
        assert found.id == "e2"
        assert await store.next(claim, found) is None


async def test_wherever_a_block_is_cancelled_its_connection_is_clean_and_its_effect_is_once(
    harness: InPostgres, postgres_database: str
) -> None:
    await harness.store.prepare()
    steps, done = 0, False
    while not done:
        task = asyncio.create_task(handle(harness, f"e{steps}", steps))
        for _ in range(steps):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await open_transactions(postgres_database) == 0, steps
        await handle(harness, f"e{steps}", steps)
        steps += 1

    assert steps > 10
    assert await harness.effects() == [f"e{step}" for step in range(steps)]
    assert await harness.store.gaps() == []


async def test_a_connection_that_is_lost_within_a_block_undoes_it(harness: InPostgres) -> None:
    async def lose_it() -> None:
        async with harness.store.once(message("a", 1)) as arrival:
            await harness.effect(arrival, "a")
            async with harness.pool.connection() as other:
                await other.execute("select pg_terminate_backend(%s)", (arrival.connection.info.backend_pid,))

    with pytest.raises(psycopg.OperationalError):
        await lose_it()

    assert (await handle(harness, "a", 1)).first
    assert await harness.effects() == ["a"]


async def test_a_pool_that_is_exhausted_fails_the_block_and_nothing_else(postgres_database: str) -> None:
    async with pool_of(postgres_database, max_size=1, timeout=WATCHDOG_S) as pool:
        harness = InPostgres(pool)
        async with harness.store.once(message("a")) as arrival:
            await harness.effect(arrival, "a")
            pool.timeout = 0.05
            # Not in the context of the block: as another session's handler.
            with pytest.raises(PoolTimeout):
                await asyncio.create_task(handle(InPostgres(pool), "b"))
            pool.timeout = WATCHDOG_S

        assert (await handle(harness, "b")).first
        assert await harness.effects() == ["a", "b"]


ENDS = (
    "commit",
    "rollback",
    "end",
    "abort",
    "commit and chain",
    "rollback and chain",
    "rollback; begin",
    "rollback; start transaction isolation level serializable",
    "commit; begin",
    "prepare transaction 'block'",
)
"""Statements that end the transaction of a block."""


@pytest.fixture(params=["psycopg", "psycopg with autocommit", "SQLAlchemy", "SQLAlchemy sessions"])
async def outside(request: pytest.FixtureRequest, postgres_database: str) -> AsyncIterator[Harness]:
    """A store whose blocks a handler tries to end."""
    if request.param.startswith("SQLAlchemy"):
        engine = create_async_engine(postgres_database.replace("postgresql://", "postgresql+psycopg://"))
        async with pool_of(postgres_database), _disposed(engine):
            yield InSqlAlchemy(engine, sessions=request.param.endswith("sessions"))
    else:
        async with pool_of(postgres_database, kwargs={"autocommit": "autocommit" in request.param}) as pool:
            yield InPostgres(pool)


@asynccontextmanager
async def _disposed(engine: AsyncEngine) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await engine.dispose()


async def test_a_block_whose_transaction_is_ended_within_it_fails(
    outside: Harness, postgres_database: str
) -> None:
    prepared = f"'{postgres_database.rpartition('/')[2]}'"  # of the whole server
    await outside.store.prepare()  # type: ignore[attr-defined]

    async def handler(identifier: str, end: str) -> None:
        async with outside.store.once(message(identifier)) as arrival:
            for statement in end.split("; "):
                await execute(arrival, statement.replace("'block'", prepared))
            await outside.effect(arrival, "after the end")

    for number, end in enumerate(ENDS):
        with pytest.raises(inbox.OutsideBlock):
            await handler(f"a{number}", end)
        if end.startswith("prepare"):
            with psycopg.connect(postgres_database, autocommit=True) as owner:
                owner.execute(f"rollback prepared {prepared}".encode())
        assert await outside.effects() == list(ENDS[:number]), end
        assert (await handle(outside, end)).first
    assert await outside.effects() == list(ENDS)


async def execute(arrival: Any, statement: str) -> None:
    """Execute a statement within a block, of whichever store."""
    if isinstance(arrival.connection, psycopg.AsyncConnection):
        await arrival.connection.execute(statement.encode())
    else:
        await arrival.connection.execute(text(statement))


async def test_savepoints_and_further_statements_of_a_block_are_the_handlers(outside: Harness) -> None:
    async with outside.store.once(message("a", 1)) as arrival:
        await execute(arrival, "savepoint mine")
        await outside.effect(arrival, "undone")
        await execute(arrival, "rollback to savepoint mine")
        await outside.effect(arrival, "a")
        await execute(arrival, "release savepoint mine")

    assert await outside.effects() == ["a"]
    assert not (await handle(outside, "a", 1)).first


async def test_an_error_that_is_passed_over_fails_the_block(harness: InPostgres) -> None:
    async def handler() -> None:
        async with harness.store.once(message("a")) as arrival:
            await harness.effect(arrival, "a")
            with contextlib.suppress(psycopg.Error):
                await arrival.connection.execute("select 1 / 0")

    with pytest.raises(inbox.OutsideBlock):
        await handler()
    assert await harness.effects() == []


async def test_a_pool_with_autocommit_has_it_again_after_a_block(postgres_database: str) -> None:
    async with pool_of(postgres_database, max_size=1, kwargs={"autocommit": True}) as pool:
        harness = InPostgres(pool)
        await handle(harness, "a", 1)
        with pytest.raises(OSError, match="the handler fails"):
            async with harness.store.once(message("b", 2)):
                raise OSError("the handler fails")
        async with pool.connection() as connection:
            assert connection.autocommit


async def test_gaps_are_read_through_the_connection_of_the_block(postgres_database: str) -> None:
    """Use every connection for a block, and read the gaps in each block."""
    async with pool_of(postgres_database, max_size=2, timeout=WATCHDOG_S) as pool:
        harness = InPostgres(pool)
        for key in "ab":
            await handle(harness, "e1", 1, key=key)
        meeting = asyncio.Barrier(2)

        async def block(key: str) -> list[inbox.Gap]:
            async with harness.store.once(message("e3", 3, key)):
                await meeting.wait()
                gaps = await harness.store.gaps()
                await meeting.wait()
                return gaps

        assert list(await asyncio.gather(block("a"), block("b"))) == [[gap("a", 2, 2)], [gap("b", 2, 2)]]
        async with harness.store.once(message("e4", 4, "a")):
            with pytest.raises(RuntimeError, match="inside a block"):
                await harness.store.forget(timedelta(days=1))


async def test_a_connection_that_two_blocks_share_is_refused_to_the_second(postgres_database: str) -> None:
    async with pool_of(postgres_database) as pool, pool.connection() as connection:
        await connection.set_autocommit(True)
        harness = InPostgres(pool)
        harness.store = inbox.PostgresStore(lambda: contextlib.nullcontext(connection))
        await harness.store.prepare()

        async def block(identifier: str) -> None:
            async with harness.store.once(message(identifier)) as arrival:
                await harness.effect(arrival, identifier)
                await asyncio.sleep(0)
                if identifier == "a":
                    raise OSError("the handler fails")

        ended = await asyncio.gather(*map(block, ("a", "b")), return_exceptions=True)
        assert [type(each) for each in ended] == [OSError, RuntimeError]
        assert await harness.effects() == []


async def test_a_connection_is_in_use_before_its_transaction_has_begun(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool_of(postgres_database) as pool, pool.connection() as connection:
        await connection.set_autocommit(True)
        harness = InPostgres(pool)
        harness.store = inbox.PostgresStore(lambda: contextlib.nullcontext(connection))
        await harness.store.prepare()
        begins, second_ended = asyncio.Event(), asyncio.Event()
        set_autocommit = connection.set_autocommit

        async def wait_at_first(value: bool) -> None:
            if not begins.is_set():
                begins.set()
                await second_ended.wait()
            await set_autocommit(value)

        monkeypatch.setattr(connection, "set_autocommit", wait_at_first)
        first = asyncio.create_task(handle(harness, "a"))
        await begins.wait()
        with pytest.raises(RuntimeError, match="Somebody else uses the connection"):
            await handle(harness, "b")
        second_ended.set()

        assert (await first).first
        assert await harness.effects() == ["a"]


@pytest.fixture(params=["in memory", "in a file"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """An engine of SQLite that has one connection for all."""
    place = ":memory:" if request.param == "in memory" else str(tmp_path / "store.sqlite")
    engine = create_async_engine(f"sqlite+aiosqlite:///{place}", poolclass=StaticPool)
    async with _disposed(engine):
        async with engine.begin() as connection:
            await connection.execute(text("create table effects (number integer primary key, id text)"))
        yield engine


@pytest.mark.parametrize("sessions", [False, True])
async def test_blocks_on_one_shared_connection_take_turns(shared: AsyncEngine, sessions: bool) -> None:
    harness = InSqlAlchemy(shared, sessions=sessions)
    begun = asyncio.Event()

    async def fails() -> None:
        async with harness.store.once(message("a")) as arrival:
            await harness.effect(arrival, "half of a")
            begun.set()
            for _ in range(100):
                await asyncio.sleep(0)
            raise OSError("the handler fails")

    failing = asyncio.create_task(fails())
    await begun.wait()
    assert (await handle(harness.another(), "b")).first
    with pytest.raises(OSError, match="the handler fails"):
        await failing
    assert await harness.effects() == ["b"]
    assert (await handle(harness, "a")).first


async def test_a_shared_connection_in_a_transaction_of_somebody_else_is_refused(shared: AsyncEngine) -> None:
    harness = InSqlAlchemy(shared)
    await harness.store.prepare()  # type: ignore[attr-defined]
    async with shared.begin() as theirs:
        await theirs.execute(text("insert into effects (id) values ('theirs')"))
        with pytest.raises(RuntimeError, match="in a transaction of somebody else"):
            await handle(harness, "a")

    assert await harness.effects() == ["theirs"]
    assert (await handle(harness, "a")).first


async def test_somebody_else_who_ends_the_transaction_of_a_block_fails_it(shared: AsyncEngine) -> None:
    harness = InSqlAlchemy(shared)
    await harness.store.prepare()  # type: ignore[attr-defined]

    async def handler(end: str) -> None:
        async with harness.store.once(message(end)), shared.connect() as theirs:
            if end == "commit()":
                await theirs.commit()
            else:
                for statement in end.split("; "):
                    await theirs.exec_driver_sql(statement)
            await theirs.execute(text("insert into effects (id) values ('after the end')"))

    for end in ("COMMIT", "ROLLBACK", "ROLLBACK; BEGIN", "COMMIT; BEGIN IMMEDIATE", "commit()"):
        with pytest.raises(inbox.OutsideBlock):
            await handler(end)
        assert await harness.effects() == [], end


async def test_a_handler_records_in_its_own_transaction(harness: InPostgres, postgres_database: str) -> None:
    await harness.store.prepare()

    async def handler(identifier: str, sequence: int, *, fails: bool = False) -> inbox.Arrival:
        async with await psycopg.AsyncConnection.connect(postgres_database) as connection:
            arrival = await harness.store.record(connection, message(identifier, sequence))
            if arrival.first:
                await connection.execute("insert into effects (id) values (%s)", (identifier,))
            if fails:
                raise OSError("after the effect")
        return arrival

    with pytest.raises(OSError, match="after the effect"):
        await handler("a", 1, fails=True)
    assert await handler("a", 1) == inbox.Arrival(first=True)
    assert await handler("c", 3) == inbox.Arrival(first=True, missing=range(2, 3))
    assert await handler("c", 3) == inbox.Arrival(first=False)
    assert await harness.effects() == ["a", "c"]
    assert await harness.store.gaps() == [gap("k", 2, 2)]


async def test_a_connection_in_a_transaction_is_refused(postgres_database: str) -> None:
    """The block would be a savepoint of it, and would commit nothing."""

    async with await psycopg.AsyncConnection.connect(postgres_database) as connection:
        await connection.execute("select 1")
        store = inbox.PostgresStore(lambda: contextlib.nullcontext(connection))
        with pytest.raises(RuntimeError, match="in a transaction already"):
            await store.prepare()


async def test_what_the_databases_encoding_lacks_is_dead_lettered_or_escaped(
    postgres_server: PostgresServer,
) -> None:
    name = "stores_latin1"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as owner:
        owner.execute(f"create database {name} encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
    try:
        for encoding in ("UTF8", "LATIN1"):
            async with pool_of(postgres_server.url(name), kwargs={"client_encoding": encoding}) as pool:
                harness = InPostgres(pool)
                with pytest.raises(inbox.DeadLetter, match="invalid-identity"):
                    await handle(harness, "a", 1, key="Ł")
                assert (await handle(harness, encoding, key="é")).first

                with pytest.raises(inbox.DeadLetter, match="invalid-identity"):
                    await harness.store.is_parked("events", "Ł")
                key = f"é in {encoding}"
                await harness.store.park(parked("Ł", 1, key), Cause("poison", "ValueError", "Łódź at the café"))
                for _ in range(2):
                    assert await harness.store.set_aside(parked("Ł2", 2, key)) is Kept.ASIDE
                [row] = [each for each in await harness.store.keys() if each.key == key]
                assert row.cause == Cause("poison", "ValueError", "\\u0141\\xf3d\\u017a at the caf\\xe9")
                messages = await harness.store.messages("events", key)
                assert [(each.id, each.message and each.message.id) for each in messages] == [
                    ("", "Ł"),
                    ("", "Ł2"),
                ]
                await harness.store.release("events", key)
                claim = await harness.store.claim("events", timedelta(minutes=1))
                assert claim is not None
                await harness.store.fail(claim, Cause("again", "", "Ł"))
                [row] = [each for each in await harness.store.keys() if each.key == key]
                assert row.cause == Cause("again", "", "\\u0141")
    finally:
        postgres_server.drop_database(name)


async def test_processes_that_open_a_store_at_once_make_its_tables_once(harness: InPostgres) -> None:
    stores = [inbox.PostgresStore(harness.pool.connection) for _ in range(4)]

    await asyncio.gather(*(store.prepare() for store in stores))

    async with harness.pool.connection() as connection:
        rows = await (await connection.execute("select version from inbox_schema order by 1")).fetchall()
        assert rows == [(migration.version,) for migration in migrations(Postgres())]
        await connection.execute("update inbox_schema set version = 99")
    with pytest.raises(ValueError, match="version 99"):
        await inbox.PostgresStore(harness.pool.connection).prepare()


class _Overtaken(inbox.PostgresStore):
    """A store whose tables another process makes once this one has sent some statements."""

    def __init__(self, harness: InPostgres, statements: int) -> None:
        super().__init__(harness.pool.connection)
        self._other, self._left = inbox.PostgresStore(harness.pool.connection), statements

    async def _execute(self, connection: psycopg.AsyncConnection[Any], statement: Statement, /) -> Result:
        result = await super()._execute(connection, statement)
        self._left -= 1
        if self._left == 0:
            await self._other.prepare()
        return result


@pytest.mark.parametrize("statements", [1, 2])
async def test_tables_that_another_process_makes_meanwhile_are_used(harness: InPostgres, statements: int) -> None:
    store = _Overtaken(harness, statements)

    await store.prepare()

    async with harness.pool.connection() as connection:
        rows = await (await connection.execute("select version from inbox_schema")).fetchall()
    assert rows == [(migrations(Postgres())[-1].version,)]


async def test_tables_that_are_made_while_a_store_is_opened_are_no_earlier_ones(harness: InPostgres) -> None:
    await _Overtaken(harness, 1).check()


async def test_sqlalchemy_refuses_autocommit_and_a_block_that_does_not_last(postgres_database: str) -> None:
    url = postgres_database.replace("postgresql://", "postgresql+psycopg://")
    autocommit = create_async_engine(url, isolation_level="AUTOCOMMIT")
    engine = create_async_engine(url)
    try:
        with pytest.raises(RuntimeError, match="AUTOCOMMIT"):
            await inbox.SqlAlchemyStore(autocommit).prepare()

        store = inbox.SqlAlchemyStore(engine)

        async def handler(statement: str) -> None:
            async with store.once(message("a")) as arrival:
                with contextlib.suppress(DBAPIError):
                    await arrival.connection.execute(text(statement))

        with pytest.raises(DBAPIError):
            await handler("select 1 / 0")
        with pytest.raises(inbox.OutsideBlock):
            await handler("rollback")
        async with store.once(message("a")) as arrival:
            assert arrival.first
    finally:
        await autocommit.dispose()
        await engine.dispose()


def test_a_database_without_a_store_is_refused() -> None:
    with pytest.raises(ValueError, match="mysql"):
        inbox.SqlAlchemyStore(SimpleNamespace(dialect=SimpleNamespace(name="mysql")))  # type: ignore[call-overload]


TABLES = (ROOT / "docs/inbox-tables.md").read_text(encoding="utf-8")


def steps() -> list[str]:
    """The statements of the page, with parameters of psycopg."""
    blocks = re.findall(r"^ *```sql\n(.*?)^ *```", TABLES.partition("## The steps")[2], re.MULTILINE | re.DOTALL)
    statements = [each.strip() for block in blocks for each in block.split(";") if each.strip()]
    return [re.sub(r"(?<![:\w]):([a-z]+)", r"%(\1)s", each) for each in statements]


async def test_the_steps_of_the_page_are_those_of_the_store(harness: InPostgres) -> None:
    """A consumer in another language, beside one that uses the store."""
    note, advance, lock, add_gap, take_last, late, prune = steps()
    place = {"consumer": "default", "topic": "events", "key": "k", "entity": "k"}

    async def by_hand(number: int) -> bool:
        async with harness.pool.connection() as connection:
            values: dict[str, object] = {**place, "id": f"e{number}", "number": number}
            if not (await connection.execute(note, values)).rowcount:
                return False
            if (await connection.execute(advance, values)).rowcount:
                return True
            row = await (await connection.execute(lock, values)).fetchone()
            assert row is not None
            values |= {"progress": row[0], "last": row[1]}
            if number > row[1]:
                await connection.execute(add_gap, values)
                await connection.execute(take_last, values)
            else:
                assert await (await connection.execute(late, values)).fetchone() == (number, number)
            return True

    assert (await handle(harness, "e1", 1)).first
    assert [await by_hand(number) for number in (1, 2, 4, 3, 8)] == [False, True, True, True, True]
    assert await handle(harness, "e8", 8) == inbox.Arrival(first=False)
    assert await harness.store.gaps() == [gap("k", 5, 7)]
    assert await handle(harness, "e9", 9) == inbox.Arrival(first=True)
    async with harness.pool.connection() as connection:
        assert (await connection.execute(prune)).rowcount == 0


def test_the_tables_of_the_page_are_those_of_the_migration() -> None:
    shown = re.search(r"```sql\n(.*?)```", TABLES, re.DOTALL)
    assert shown is not None

    statements = [each.strip() for each in shown[1].split(";") if each.strip()]
    (baseline, *_) = migrations(Postgres())
    made = [each.replace('"public".', "public.") for each in baseline.statements]
    assert statements == [each for each in made if "inbox_parked" not in each]
    assert f"insert into public.inbox_schema values ({baseline.version});" in TABLES
