"""Installing and upgrading the schema, setting up feeds and dropping them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import (
    START,
    ArgumentError,
    ChangefeedError,
    Consumer,
    CursorPrunedError,
    DatabaseError,
    Feed,
    Session,
    SetupError,
)
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import Migration, Statement, run
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer
from tests.support.watchdog import WATCHDOG_S

KNOWN = migrations("postgresql")
ALL = [migration.name for migration in KNOWN]
OBJECTS = """
select 'relation ' || relname from pg_class where relnamespace = to_regnamespace('changefeed')
union all select 'function ' || proname from pg_proc where pronamespace = to_regnamespace('changefeed')
union all select 'type ' || typname from pg_type where typnamespace = to_regnamespace('changefeed')
union all select 'role ' || rolname from pg_roles where rolname like 'changefeed.%'
union all select 'right ' || grantee || privilege_type || table_name from information_schema.role_table_grants
    where grantee like 'changefeed.%'
union all select 'feed ' || table_name from changefeed.outbox_feed
order by 1
"""


@pytest.fixture
def empty(postgres_database: str) -> Iterator[Session]:
    """A session in a database without the schema."""
    session = changefeed.connect(postgres_database)
    yield session
    session.close()


def with_another(text: str) -> list[Migration]:
    """Return the migrations, and one after them with this text."""
    version = KNOWN[-1].version + 1
    return [*KNOWN, Migration(version, f"{version:04}_another.sql", text)]


def versions(session: Session) -> list[int]:
    rows = session.execute(Statement("select version from changefeed.migration order by version")).rows
    return [version for (version,) in rows]


def test_it_is_installed_once(empty: Session) -> None:
    assert changefeed.install(empty) == ALL
    assert changefeed.install(empty) == []
    assert versions(empty) == [migration.version for migration in KNOWN]


@pytest.mark.parametrize(("dialect", "version"), [("postgresql", 5), ("sqlserver", 4)])
def test_the_first_migration_has_the_version_that_release_0_1_0_knows(dialect: str, version: int) -> None:
    assert migrations(dialect)[0].version == version


def test_a_migration_that_is_missing_is_applied_alone_and_once(empty: Session) -> None:
    changefeed.install(empty)
    every = with_another("create table changefeed.another (id int)")

    assert run(empty, empty.dialect.install(every)) == [every[-1].name]
    assert run(empty, empty.dialect.install(every)) == []
    assert versions(empty) == [migration.version for migration in every]


def test_an_empty_database_gets_every_migration_in_order(empty: Session) -> None:
    every = with_another("alter table changefeed.low_water add column another int")

    assert run(empty, empty.dialect.install(every)) == [migration.name for migration in every]
    assert versions(empty) == [migration.version for migration in every]


def test_a_migration_that_fails_leaves_the_version_before_it(empty: Session) -> None:
    every = with_another("create table changefeed.half (id int); select * from nothing")

    with pytest.raises(ChangefeedError, match="nothing"):
        run(empty, empty.dialect.install(every))

    assert versions(empty) == [migration.version for migration in KNOWN]
    assert empty.execute(Statement("select to_regclass('changefeed.half') is null")).rows[0][0]
    assert changefeed.install(empty) == []


def test_several_processes_install_at_once(postgres_database: str) -> None:
    sessions = [changefeed.connect(postgres_database) for _ in range(6)]
    with ThreadPoolExecutor(len(sessions)) as pool:
        applied = list(pool.map(changefeed.install, sessions, timeout=WATCHDOG_S))

    assert sorted(len(names) for names in applied) == [0] * 5 + [len(ALL)]
    every = with_another("create table changefeed.another (id int)")
    with ThreadPoolExecutor(len(sessions)) as pool:
        upgrades = pool.map(
            lambda session: run(session, session.dialect.install(every)), sessions, timeout=WATCHDOG_S
        )
        assert sorted(upgrades) == [[]] * 5 + [[every[-1].name]]
    for session in sessions:
        session.close()


def test_an_installer_waits_for_another_one(empty: Session, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as other, ThreadPoolExecutor(1) as pool:
        other.execute("select pg_advisory_xact_lock(x'6368616E67656665'::bigint)")
        installing = pool.submit(changefeed.install, empty)
        with pytest.raises(TimeoutError):
            installing.result(0.2)
        other.commit()
        assert installing.result(WATCHDOG_S) == ALL


def test_the_schema_of_a_later_version_is_refused(empty: Session) -> None:
    changefeed.install(empty)
    empty.execute(Statement("insert into changefeed.migration (version) values (99)"))

    with pytest.raises(SetupError, match=r"has version 99, and this library knows \d+: install"):
        changefeed.install(empty)


@pytest.mark.parametrize("version", range(1, KNOWN[0].version))
def test_the_schema_of_a_version_before_the_first_release_is_refused(empty: Session, version: int) -> None:
    changefeed.install(empty)
    empty.execute(Statement("update changefeed.migration set version = ?", (version,)))

    with pytest.raises(SetupError, match=rf"has version {version}, .* before 0.1.0.*upgrade it with app-v0"):
        changefeed.install(empty)
    assert versions(empty) == [version]


def test_an_installer_that_has_failed_leaves_nothing_behind(empty: Session) -> None:
    """One of the migration's names is taken, so it fails in its middle; and the lock is free again."""
    empty.execute(
        Statement(
            "create schema changefeed; create function changefeed.drop_feed(table_name text) "
            "returns void language sql as ''"
        )
    )

    with pytest.raises(DatabaseError, match="already exists"):
        changefeed.install(empty)

    assert empty.execute(Statement("select to_regclass('changefeed.outbox_feed') is null")).rows[0][0]
    empty.execute(Statement("drop function changefeed.drop_feed(text)"))
    assert changefeed.install(empty) == ALL


def test_what_a_feed_needs_first_is_named(empty: Session) -> None:
    with pytest.raises(SetupError, match=r"python -m outbox_relay\.changefeed install"):
        changefeed.setup_feed(empty, "app.event")
    with pytest.raises(SetupError, match=r"python -m outbox_relay\.changefeed install"):
        changefeed.drop_feed(empty, "app.event")


def test_a_feed_is_set_up_once(backend: Backend) -> None:
    with pytest.raises(ArgumentError, match=r"app\.event has a feed already"):
        changefeed.setup_feed(backend.owner, TABLE)


def test_a_feed_is_set_up_by_one_of_two_sessions(postgresql: PostgresBackend) -> None:
    sessions = [postgresql.session(), postgresql.session()]

    def set_up(session: Session) -> str:
        try:
            changefeed.setup_feed(session, "app.aggregate")
        except ArgumentError as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(set_up, sessions, timeout=WATCHDOG_S))

    assert "app.aggregate has a feed already" in said[0]
    assert said[1] == "done"


def test_an_unknown_table_is_refused(backend: Backend) -> None:
    for name in ("app.nothing", "nothing.event", "event", "app.", ".event", ""):
        with pytest.raises(ArgumentError, match="there is no table"):
            changefeed.setup_feed(backend.owner, name)


def test_a_name_in_another_case_gets_no_second_feed(backend: Backend) -> None:
    """It is no table in PostgreSQL, and the same table in a database of SQL Server that ignores case."""
    with pytest.raises(ArgumentError, match=r"there is no table APP\.EVENT|APP\.EVENT has a feed already"):
        changefeed.setup_feed(backend.owner, "APP.EVENT")


def test_a_table_without_a_primary_key_is_refused(backend: Backend) -> None:
    backend.owner.execute(Statement("create table app.heap (id int not null unique)"))

    with pytest.raises(ArgumentError, match=r"app\.heap has no primary key.*Add one"):
        changefeed.setup_feed(backend.owner, "app.heap")


def test_a_name_that_is_too_long_is_refused(postgresql: PostgresBackend) -> None:
    fits, too_long = "t" * 40, "t" * 41
    for name in (fits, too_long):
        postgresql.execute(f"create table app.{name} (id int primary key)")

    with pytest.raises(ArgumentError, match=r"has 45 bytes.*44 bytes at most"):
        changefeed.setup_feed(postgresql.owner, f"app.{too_long}")

    changefeed.setup_feed(postgresql.owner, f"app.{fits}")
    postgresql.execute(f"insert into app.{fits} values (1)")
    postgresql.execute(f'insert into changefeed."outbox:app.{fits}" (shard_id, id) values (0, 1)')
    assert len(Feed(postgresql.session(), f"app.{fits}").read(0).entries) == 1
    changefeed.drop_feed(postgresql.owner, f"app.{fits}")


def test_the_length_of_a_name_is_counted_in_bytes(postgresql: PostgresBackend) -> None:
    postgresql.execute(f"create table app.{'ö' * 21} (id int primary key)")

    with pytest.raises(ArgumentError, match="has 46 bytes"):
        changefeed.setup_feed(postgresql.owner, f"app.{'ö' * 21}")


def test_a_feed_without_an_outbox_is_not_supported(postgresql: PostgresBackend) -> None:
    with pytest.raises(ArgumentError, match="without an outbox is not supported"):
        postgresql.rows("select changefeed.setup_feed('app.aggregate', outbox => false)")


def test_a_dropped_feed_leaves_nothing_behind(empty: Session, postgres_database: str) -> None:
    changefeed.install(empty)
    empty.execute(Statement("create schema app; create table app.one (id int primary key)"))
    before = empty.execute(Statement(OBJECTS)).rows

    changefeed.setup_feed(empty, "app.one")
    assert empty.execute(Statement(OBJECTS)).rows != before
    changefeed.drop_feed(empty, "app.one")

    assert empty.execute(Statement(OBJECTS)).rows == before
    assert empty.execute(Statement("select to_regclass('app.one') is not null")).rows[0][0]
    rights = "select count(*) from pg_class, aclexplode(relacl) where relname = 'one' and grantee <> relowner"
    assert empty.execute(Statement(rights)).rows[0][0] == 0


def test_dropping_a_feed_leaves_others_alone(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    changefeed.setup_feed(backend.owner, "app.aggregate")
    journal.write(writer, 0, "a")

    changefeed.drop_feed(backend.owner, "app.aggregate")

    reader.drain()
    journal.write(writer, 0, "b")
    reader.drain()
    journal.observed(reader)
    assert journal.faults() == []


def test_a_dropped_feed_can_be_set_up_again(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    journal.write(writer, 0, "a")
    reader.drain()
    changefeed.drop_feed(backend.owner, TABLE)
    changefeed.setup_feed(backend.owner, TABLE)

    assert Feed(backend.session(), TABLE).read(0, START).entries == []
    written = journal.write(writer, 0, "b")
    assert observer(backend.session()).drain() == written


def test_the_feed_of_a_table_that_was_dropped_can_be_dropped(postgresql: PostgresBackend) -> None:
    postgresql.execute("create schema gone; create table gone.event (id int primary key)")
    changefeed.setup_feed(postgresql.owner, "gone.event")
    postgresql.execute("drop schema gone cascade")

    changefeed.drop_feed(postgresql.owner, "gone.event")

    assert postgresql.rows("select proname from pg_proc where proname like '%gone.event'") == []
    assert postgresql.rows("select relname from pg_class where relname like '%gone.event%'") == []
    assert postgresql.rows("select rolname from pg_roles where rolname like '%gone.event'") == []


_SERVICE = """
create schema app;
create table app.event (id text primary key, data jsonb not null default '{}');
select changefeed.setup_feed('app.event', outbox => true, notify => true, roles => true);
create role relay login;
grant "changefeed.readers:app.event" to relay;
insert into app.event (id) values ('a'), ('b'), ('c');
insert into changefeed."outbox:app.event" (shard_id, time_hint, id)
    values (0, '2020-01-01Z', 'a'), (0, '2020-01-02Z', 'b');
create table gone (id int primary key);
select changefeed.setup_feed('public.gone', outbox => true, notify => false, roles => false);
drop table gone cascade;
"""


@pytest.fixture
def service(postgres_database: str) -> str:
    """The URL of a database with a feed, two of whose events have positions."""
    session = changefeed.connect(postgres_database)
    changefeed.install(session)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(_SERVICE.encode())
        connection.execute(
            'insert into changefeed."claim:app.event" (consumer, shard_id, last_ulid, role_name) '
            "select 'relay', 0, min(ulid::text)::uuid, 'relay' "
            "from changefeed.\"read_feed:app.event\"(0, '00000000-0000-0000-0000-000000000000')"
        )
        connection.execute("insert into changefeed.\"outbox:app.event\" (shard_id, id) values (0, 'c')")
    session.close()
    return postgres_database


def ids(page: changefeed.Page) -> list[str]:
    return [entry.row["id"] for entry in page.entries if entry.row is not None]


def test_a_reader_goes_on_from_a_claim_with_the_rights_of_its_role(service: str) -> None:
    with_owner = changefeed.connect(service)
    reader: Session = changefeed.connect(service, user="relay")
    feed, consumer = Feed(reader, TABLE), Consumer(reader, TABLE, "relay")
    (claim,) = consumer.claims([0])

    claim = consumer.take(claim, "me")
    page = feed.read(0, claim.cursor, max_bytes=10_000)
    last = feed.read(0, page.cursor)
    consumer.store(claim, last.cursor)

    assert ids(page) + ids(last) == ["b", "c"]
    assert not feed.wait(0, last.cursor, 0)
    assert feed.carry_out_retention() == 0
    assert changefeed.status(with_owner).feeds[0].keep is None
    changefeed.set_keep(with_owner, TABLE, "30d")
    assert feed.carry_out_retention() == 2
    with pytest.raises(CursorPrunedError):
        feed.read(0, claim.cursor)
    assert ids(feed.read(0, START)) == ["c"]
    # Without a limit in bytes, in SQL of one's own.
    by_hand = reader.execute(
        Statement(
            'select ulid, missing, (event).* from changefeed."read_events:app.event"(?, ?::uuid, ?)',
            (0, START.hex(), 10),
        )
    )
    assert [row[2] for row in by_hand.rows] == ["c"]
    reader.close()
    changefeed.drop_feed(with_owner, TABLE)
    changefeed.drop_feed(with_owner, "public.gone")
    with_owner.close()
