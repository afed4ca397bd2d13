"""install, setup_feed and drop_feed on a server with T-SQL, and what the roles of a feed may do."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest

from outbox_relay.changefeed import (
    START,
    ArgumentError,
    ChangefeedError,
    Consumer,
    DatabaseError,
    Feed,
    Session,
    SetupError,
    connect,
    drop_feed,
    install,
    setup_feed,
)
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import Migration, Statement, run
from tests.changefeed.sqlserver.backend import TsqlDatabase
from tests.changefeed.sqlserver.conftest import Events

_logins = itertools.count()
_PASSWORD = "Pass-word-4711"


def _objects(session: Session, table: str) -> list[str]:
    rows = session.execute(
        Statement("select lower(name) from sys.objects where name like ?", (f"%:{table}",))
    ).rows
    return sorted(row[0].partition(":")[0] for row in rows)


def test_installing_again_changes_nothing(database: TsqlDatabase) -> None:
    assert install(database.owner) == []


def test_a_schema_of_a_later_version_is_refused(database: TsqlDatabase) -> None:
    with pytest.raises(SetupError, match="or a later one"):
        run(database.owner, database.owner.dialect.install([Migration(1, "0001.sql", "select 1")]))


def test_a_schema_of_a_version_before_the_first_migration_is_refused(database: TsqlDatabase) -> None:
    version = migrations("sqlserver")[-1].version
    with pytest.raises(SetupError, match=f"has version {version}, .* before 0.1.0"):
        run(database.owner, database.owner.dialect.install([Migration(version + 1, "later.sql", "select 1")]))


def test_a_migration_that_fails_leaves_nothing(database: TsqlDatabase) -> None:
    known = migrations("sqlserver")
    half = "create table changefeed.half (n int)\ngo\nselect * from nothing"
    with pytest.raises(ChangefeedError, match="nothing"):
        run(
            database.owner,
            database.owner.dialect.install([*known, Migration(known[-1].version + 1, "failing", half)]),
        )

    left = database.owner.execute(Statement("select @@trancount, object_id('changefeed.half')")).rows[0]
    assert tuple(left) == (0, None)
    assert install(database.owner) == []


@pytest.mark.parametrize("table", ["event", "app.", ".event", "app.missing", "app.[event]", "app." + 97 * "x"])
def test_a_table_that_is_not_there_is_refused(database: TsqlDatabase, table: str) -> None:
    with pytest.raises(ArgumentError):
        setup_feed(database.owner, table)


def test_a_primary_key_with_a_column_of_the_feeds_is_refused(make_events: Callable[..., Events]) -> None:
    with pytest.raises(ArgumentError, match="Rename"):
        make_events("Ulid int not null primary key")


def test_a_feed_without_an_outbox_is_refused(events: Events) -> None:
    with pytest.raises(ArgumentError, match="@outbox = 1"):
        events.run("exec changefeed.setup_feed @table = ?", events.table)


def test_a_feed_that_was_dropped_leaves_its_events_and_can_be_set_up_again(
    make_events: Callable[..., Events], database: TsqlDatabase
) -> None:
    events = make_events(roles=True)
    events.insert(1)
    drop_feed(database.owner, events.table)

    assert _objects(database.owner, events.table) == []
    assert len(events.run("select id from {events}").rows) == 1
    with pytest.raises(ArgumentError, match="has no feed"):
        drop_feed(database.owner, events.table)
    setup_feed(database.owner, events.table)
    assert events.read() == []
    drop_feed(database.owner, events.table)


def test_a_feed_that_lacks_a_procedure_can_be_dropped(events: Events, database: TsqlDatabase) -> None:
    events.run(f"drop procedure changefeed.[retain:{events.table}]")

    drop_feed(database.owner, events.table)

    assert _objects(database.owner, events.table) == []
    setup_feed(database.owner, events.table)


def test_procedures_that_are_created_again_keep_what_was_read(events: Events) -> None:
    events.insert(1, 2)
    cursor = events.feed.read(0, START, 1).cursor
    events.run("exec changefeed.create_procedures ?", events.table)

    assert events.read(cursor) == [2]
    assert events.read() == [1, 2]


@pytest.fixture
def make_member(database: TsqlDatabase) -> Iterator[Callable[[str], Session]]:
    """Makes a session of a login that is a member of nothing but this role."""
    made: list[tuple[Session, str]] = []

    def make(role: str) -> Session:
        name = f"{re.search('Database=(.*)', database.url)[1]}_{next(_logins)}"  # type: ignore[index]
        database.owner.execute(Statement(f"create login {name} with password = '{_PASSWORD}'"))
        database.owner.execute(Statement(f"create user {name} for login {name}"))
        database.owner.execute(Statement(f"alter role [{role}] add member {name}"))
        url = re.sub(r"(?i)\b(uid|pwd)\s*=[^;]*;?", "", database.url)
        session = connect(f"{url.rstrip(';')};UID={name};PWD={_PASSWORD}")
        made.append((session, name))
        return session

    yield make
    for session, name in made:
        session.close()
        database.owner.execute(Statement(f"drop user {name}"))


def _refused(events: Events, sql: str) -> bool:
    try:
        events.run(sql)
    except DatabaseError as error:
        return "denied" in str(error)
    return False


def test_a_writer_may_insert_into_the_outbox_and_no_more(
    make_events: Callable[..., Events], make_member: Callable[[str], Session]
) -> None:
    events = make_events(roles=True)
    writer = events.on(make_member(f"changefeed.writers:{events.table}"))
    writer.run("insert into {outbox} (shard_id, id) values (0, 1)")

    assert _refused(writer, "select * from {outbox}")
    assert _refused(writer, "delete from {outbox}")
    assert _refused(writer, "select * from {feed}")
    assert _refused(writer, "select * from {claim}")
    assert _refused(writer, "exec {read_events} 0, 0x00, 10")
    assert [entry.key for entry in events.feed.read(0).entries] == [{"id": 1}]


def test_a_reader_may_read_and_claim(
    make_events: Callable[..., Events], make_member: Callable[[str], Session]
) -> None:
    events = make_events(roles=True)
    events.insert(1)
    reader = events.on(make_member(f"changefeed.readers:{events.table}"))
    assert Feed(reader.session, events.table).wait(0, START, 0)
    assert reader.read() == [1]
    consumer = Consumer(reader.session, events.table, "tests")
    consumer.store(consumer.take(consumer.claims([0])[0], "me"), events.feed.read(0).cursor)

    assert _refused(reader, "insert into {outbox} (shard_id, id) values (0, 2)")
    assert _refused(reader, "delete from {feed}")
    assert _refused(reader, "insert into {events} (id) values (2)")
    assert _refused(reader, "delete from {claim}")


def test_a_reader_may_touch_no_table_but_through_procedures(
    make_events: Callable[..., Events], make_member: Callable[[str], Session], database: TsqlDatabase
) -> None:
    if database.babelfish:
        pytest.skip(
            "Babelfish checks the caller's rights within a procedure, so readers have rights on the tables"
        )
    events = make_events(roles=True)
    events.insert(1)
    reader = events.on(make_member(f"changefeed.readers:{events.table}"))

    assert _refused(reader, "select * from {outbox}")
    assert _refused(reader, "select * from {feed}")
    assert _refused(reader, "update {state} set shard_id = 1")
    assert _refused(reader, "exec {number} 0, 0x00, 10")
