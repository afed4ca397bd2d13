"""`SqliteStore` beyond the contract of a store: one connection for all handlers, and its migrations."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from outbox_relay import inbox
from outbox_relay.inbox.stores import servers
from outbox_relay.inbox.stores import sqlite as sqlite_stores
from outbox_relay.inbox.stores.sql import recording
from outbox_relay.inbox.stores.sql.dialects import Dialect, Postgres, Sqlite, SqlServer
from tests.support.closing import CloseLater
from tests.support.inbox_stores import InSqlite, add_migration, engine_of, gap, handle, message
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


async def test_sqlite_keeps_the_effect_and_the_id_together(tmp_path: Path, close_later: CloseLater) -> None:
    path = tmp_path / "store.sqlite"
    harness = close_later(InSqlite(path))

    async def fail() -> None:
        async with harness.store.once(message("a")):
            await harness.effect(None, "a")
            raise OSError("after the effect")

    with pytest.raises(OSError, match="after the effect"):
        await fail()
    assert await harness.effects() == []
    await handle(harness, "a")

    # Another process, later.
    again = close_later(InSqlite(path))
    assert not (await handle(again, "a")).first
    assert await again.effects() == ["a"]


async def test_sqlite_keeps_consumers_apart(tmp_path: Path, close_later: CloseLater) -> None:
    connection = close_later(inbox.SqliteConnection(tmp_path / "store.sqlite"))
    one, other = (inbox.SqliteStore(connection, consumer=name) for name in ("one", "other"))

    for store in (one, other):
        async with store.once(message("a", 5)) as arrival:
            assert arrival.first
    async with one.once(message("b", 7)) as arrival:
        assert arrival.missing == range(6, 7)
    assert await other.gaps() == []


def test_a_connection_that_lets_every_handler_write_is_refused(tmp_path: Path, close_later: CloseLater) -> None:
    with pytest.raises(TypeError, match=r"inbox\.SqliteConnection"):
        inbox.SqliteStore(close_later(sqlite3.connect(tmp_path / "store.sqlite")))  # type: ignore[arg-type]


async def test_a_write_outside_of_a_block_is_refused_while_another_block_is_open(
    tmp_path: Path, close_later: CloseLater
) -> None:
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))
    database = harness.connection
    inside, leave = asyncio.Event(), asyncio.Event()

    async def roll_back() -> None:
        async with harness.store.once(message("a")):
            await harness.effect(None, "a")
            inside.set()
            await leave.wait()
            raise OSError("the block fails")

    failing = asyncio.create_task(roll_back())
    await asyncio.wait_for(inside.wait(), WATCHDOG_S)
    refused: list[Callable[[], object]] = [
        lambda: database.execute("INSERT INTO effects (id) VALUES ('outside')"),
        lambda: database.executemany("INSERT INTO effects (id) VALUES (?)", [("outside",)]),
        lambda: database.executescript("INSERT INTO effects (id) VALUES ('outside')"),
        lambda: database.cursor().execute("INSERT INTO effects (id) VALUES ('outside')"),
        lambda: database.execute("SELECT id FROM effects"),  # what is not committed
        database.commit,
        database.rollback,
        database.__enter__,
        lambda: database.blobopen("effects", "id", 1),
    ]
    for write in refused:
        with pytest.raises(inbox.OutsideBlock):
            write()
    leave.set()
    with pytest.raises(OSError, match="the block fails"):
        await failing

    await harness.effect(None, "outside")  # commits by itself
    assert await harness.effects() == ["outside"]


def test_a_cursor_that_would_not_check_its_statements_is_refused(tmp_path: Path, close_later: CloseLater) -> None:
    with pytest.raises(TypeError, match="cursors of its own"):
        close_later(inbox.SqliteConnection(tmp_path / "store.sqlite")).cursor(sqlite3.Cursor)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["with", "with, and an error", "isolation_level"])
async def test_nothing_that_another_handler_ends_commits_half_a_block(
    tmp_path: Path, close_later: CloseLater, end: str
) -> None:
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))
    inside, leave = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        async with harness.store.once(message("a")):
            await harness.effect(None, "first half")
            inside.set()
            await leave.wait()
            await harness.effect(None, "second half")

    async def start_block() -> asyncio.Task[None]:
        task = asyncio.create_task(block())
        await asyncio.wait_for(inside.wait(), WATCHDOG_S)
        return task

    if end == "isolation_level":
        task = await start_block()
        with pytest.raises(sqlite3.DatabaseError):
            harness.connection.isolation_level = None
    else:
        with contextlib.suppress(OSError), harness.connection:
            task = await start_block()
            if "error" in end:
                raise OSError("the other handler fails")
    leave.set()
    await task

    assert await harness.effects() == ["first half", "second half"]


async def test_a_task_of_the_handler_may_write_inside_its_block(tmp_path: Path, close_later: CloseLater) -> None:
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))

    async def part() -> None:
        await harness.effect(None, "part")

    async with harness.store.once(message("a")):
        await asyncio.create_task(part())

    assert await harness.effects() == ["part"]


@pytest.mark.parametrize("end", ["commit", "rollback", "with", "executescript", "COMMIT", "ROLLBACK"])
async def test_a_block_whose_transaction_the_handler_ends_fails(
    tmp_path: Path, close_later: CloseLater, end: str
) -> None:
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))
    database = harness.connection

    async def handler() -> None:
        async with harness.store.once(message("a")) as arrival:
            assert arrival.first
            await harness.effect(None, "first half")
            if end == "with":
                with database:
                    pass
            elif end == "executescript":
                database.executescript("SELECT 1")
            elif end.isupper():
                database.execute(end)
            else:
                getattr(database, end)()
            await harness.effect(None, "a")

    with pytest.raises(inbox.OutsideBlock):
        await handler()
    assert await harness.effects() == []
    assert (await handle(harness, "a")).first


async def test_two_stores_on_one_connection_take_turns(tmp_path: Path, close_later: CloseLater) -> None:
    connection = close_later(inbox.SqliteConnection(tmp_path / "store.sqlite"))
    one, other = (inbox.SqliteStore(connection, consumer=name) for name in ("one", "other"))

    async def block(store: inbox.Store) -> bool:
        async with store.once(message("a")) as arrival:
            await elapse(0.01)
            return arrival.first

    found = await asyncio.gather(block(one), block(other), other.forget(timedelta(days=1)))
    assert list(found) == [True, True, 0]


@pytest.mark.parametrize("through", ["sqlite3", "SQLAlchemy"])
async def test_many_ids_are_forgotten_in_several_transactions(
    through: str, tmp_path: Path, close_later: CloseLater, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (recording, servers, sqlite_stores):
        monkeypatch.setattr(module, "ROWS", 2)
    path = tmp_path / "store.sqlite"
    async with engine_of(f"sqlite+aiosqlite:///{path}") as engine:
        store: inbox.Store = inbox.SqlAlchemyStore(engine)
        if through == "sqlite3":
            store = inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))
        for number in range(5):
            async with store.once(message(f"e{number}")):
                pass

        assert await store.forget(timedelta(seconds=-1)) == 5


async def test_a_reader_of_gaps_waits_for_no_writer(tmp_path: Path, close_later: CloseLater) -> None:
    path = tmp_path / "store.sqlite"
    async with engine_of(f"sqlite+aiosqlite:///{path}") as engine:
        store = inbox.SqlAlchemyStore(engine)
        await store.prepare()
        writer = close_later(sqlite3.connect(path, isolation_level=None))
        writer.execute("begin immediate")

        assert await store.gaps() == []


async def test_a_gap_costs_the_same_however_many_there_are(tmp_path: Path, close_later: CloseLater) -> None:
    """Counted: the bytes of the statements that are executed, with their values."""
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))
    written = 0

    def count(statement: str) -> None:
        nonlocal written
        written += len(statement)

    async def cost(first: int) -> int:
        before = written
        for number in range(first, first + 200, 2):
            await handle(harness, f"e{number:06}", number)
        return written - before

    harness.connection.set_trace_callback(count)
    early, rows = await cost(100_001), harness.connection.total_changes
    for number in range(100_201, 102_201, 2):
        await handle(harness, f"e{number:06}", number)
    late = await cost(102_201)

    assert len(await harness.store.gaps()) == 1199
    assert late < 1.1 * early
    assert harness.connection.total_changes - rows <= 4 * 1100


_WITHOUT_KEYS = """
INSERT INTO inbox_handled (consumer, id, at) VALUES ('default', 'old', 1), ('other', 'theirs', 1);
INSERT INTO inbox_progress (progress, consumer, entity, last) VALUES (1, 'default', 'k', 12), (2, 'other', 'k', 3);
INSERT INTO inbox_gaps (progress, first, last) VALUES (1, 6, 8), (1, 11, 11);
"""


def store_without_keys(path: Path) -> None:
    """A store with what release 0.1.0 left of a version that identified events by their ids alone."""
    with contextlib.closing(inbox.SqliteConnection(path)) as connection:
        inbox.SqliteStore(connection)
        connection.executescript(_WITHOUT_KEYS)


async def test_what_was_handled_without_a_key_stays_handled(tmp_path: Path, close_later: CloseLater) -> None:
    store_without_keys(tmp_path / "store.sqlite")
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))
    for key in ("k", "l"):
        assert not (await handle(harness, "old", 4, key=key)).first
    assert await harness.store.gaps() == [inbox.Gap("k", 6, 8), inbox.Gap("k", 11, 11)]
    assert (await handle(harness, "theirs")).first

    assert await handle(harness, "e7", 7) == inbox.Arrival(first=True, late=True, was_missing=True)
    assert await handle(harness, "e14", 14) == inbox.Arrival(first=True, missing=range(13, 14))
    assert await harness.store.gaps() == [gap("k", *each) for each in ((6, 6), (8, 8), (11, 11), (13, 13))]
    assert await harness.store.forget(timedelta(days=1)) == 1
    assert (await handle(harness, "old")).first


async def test_a_migration_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, close_later: CloseLater, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    assert (await handle(close_later(InSqlite(path)), "old")).first
    with monkeypatch.context() as patch:
        add_migration(patch, "DELETE FROM inbox_handled", "SELECT json('not JSON')")
        with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):
            inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))

    harness = close_later(InSqlite(path))
    assert not (await handle(harness, "old")).first
    assert (await handle(harness, "new")).first


_OPENING = """
import sys
import pytest
from outbox_relay import inbox
from tests.support.inbox_stores import add_migration
add_migration(pytest.MonkeyPatch(), "create table inbox_another (number integer)")
print("ready", flush=True)
sys.stdin.readline()
inbox.SqliteStore(inbox.SqliteConnection(sys.argv[1]))
"""


@pytest.mark.parametrize("installed", [False, True])
async def test_processes_that_open_a_store_at_once_migrate_it_once(
    installed: bool, tmp_path: Path, close_later: CloseLater
) -> None:
    path = tmp_path / "store.sqlite"
    if installed:
        inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))
    opening = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _OPENING,
            str(path),
            cwd=Path(__file__).parents[2],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    async with asyncio.timeout(WATCHDOG_S):
        for each in opening:
            assert each.stdout is not None
            await each.stdout.readline()
        await asyncio.gather(*(each.communicate(b"go\n") for each in opening))
    assert [each.returncode for each in opening] == [0] * 2

    known = [migration.version for migration in recording.migrations(Sqlite())]
    other = close_later(sqlite3.connect(path))
    versions = other.execute("SELECT version FROM inbox_schema ORDER BY 1").fetchall()
    assert versions == [(version,) for version in [*known, known[-1] + 1]]


def test_a_store_of_a_later_version_is_refused(tmp_path: Path, close_later: CloseLater) -> None:
    harness = close_later(InSqlite(tmp_path / "store.sqlite"))
    harness.connection.execute("UPDATE inbox_schema SET version = 99")

    with pytest.raises(ValueError, match="version 99"):
        inbox.SqliteStore(close_later(inbox.SqliteConnection(tmp_path / "store.sqlite")))


_RECORDED = "CREATE TABLE inbox_schema (version INTEGER NOT NULL); INSERT INTO inbox_schema VALUES ({version});"


@pytest.mark.parametrize(
    ("version", "schema"), [(1, ""), *((version, _RECORDED.format(version=version)) for version in (2, 3))]
)
def test_a_store_of_a_version_before_the_first_release_is_refused(
    version: int, schema: str, tmp_path: Path, close_later: CloseLater
) -> None:
    old = close_later(sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None))
    old.executescript(f"CREATE TABLE inbox_handled (consumer TEXT NOT NULL, id TEXT NOT NULL); {schema}")
    before = old.execute("SELECT * FROM sqlite_master").fetchall()

    with pytest.raises(ValueError, match=f"version {version}, .* before 0.1.0.*migrate them with app-v0"):
        inbox.SqliteStore(close_later(inbox.SqliteConnection(tmp_path / "store.sqlite")))
    assert old.execute("SELECT * FROM sqlite_master").fetchall() == before


@pytest.mark.parametrize(("dialect", "version"), [(Sqlite(), 4), (Postgres(), 3), (SqlServer(), 3)])
def test_the_first_migration_has_the_version_that_release_0_1_0_knows(dialect: Dialect, version: int) -> None:
    assert recording.migrations(dialect)[0].version == version
