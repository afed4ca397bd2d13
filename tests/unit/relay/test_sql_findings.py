"""The findings of `check` for given answers of a database; test_sql_check.py asks PostgreSQL itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from azure.core.exceptions import ClientAuthenticationError

from outbox_relay.changefeed import START, DatabaseError
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from outbox_relay.changefeed.sqlserver.dialect import SqlServerDialect
from outbox_relay.changefeed.statements import Dialect, Operation, Result, Row, Statement
from outbox_relay.changefeed.tables import Tables
from outbox_relay.changefeed.ulid import at
from outbox_relay.operator.backends.sql.check import DatabaseCheck, check
from relay.backends.findings import Finding, Level
from relay.backends.sql.catalog import POSTGRESQL, RIGHTS, SQLSERVER, Catalog, purposes_of
from relay.config.clients import Identity
from relay.config.settings import SqlFeed
from tests.support import virtual_time

TABLE = "outbox.domain_event"
FEED = SqlFeed("postgresql://h/d", Identity(managed=False, client_id=None), TABLE, 2, 0.5)
NOW = datetime(2026, 2, 9, 9, 37, 37, tzinfo=UTC)
NEWEST = migrations("postgresql")[-1].version
TABLES = Tables(SqlServerDialect(), TABLE)

T = TypeVar("T")


def position(age_s: float) -> bytes:
    return at(NOW - timedelta(seconds=age_s))


class Database:
    """A sound one, with a running relay, as `check` reads it. Tests change its answers."""

    def __init__(self, catalog: Catalog) -> None:
        self.dialect: Dialect = PostgresDialect() if catalog is POSTGRESQL else SqlServerDialect()
        self.catalog = catalog
        self.server: list[Any] = [False, None, True, int(NOW.timestamp() * 1000)]
        self.rights: dict[str, set[str] | None] = {purpose: set(RIGHTS) for purpose in purposes_of(TABLE)}
        self.version = NEWEST
        self.columns = {"id": "text", "partition_key": "character varying", "data": "jsonb"}
        self.key = ["id"]
        # The sequence's cache, whether commits notify, whether retention is undecided, tables without autovacuum,
        # the age of the oldest transaction.
        self.maintenance: list[Any] = [1, True, False, None, 0.0]
        # By shard: how many rows wait, and the age of the oldest; the position on the feed; the cursor; the last
        # position given.
        self.waiting: dict[int, tuple[int, float]] = {}
        self.feed: dict[int, bytes] = {}
        self.cursors = {0: START, 1: START}
        self.last: dict[int, bytes] = {}
        self.owners: dict[int, str | None] = {0: "worker", 1: "worker"}
        self.silent: set[int] = set()
        self.hidden: list[str] = []
        self.damage: list[str] = []
        self.partitioned_by: list[str] = []
        self.closed = False
        self._looks = 0
        if catalog is SQLSERVER:
            self.version = migrations("sqlserver")[-1].version
            self.server[:3] = None, 1, None
            self.columns = {"id": "uniqueidentifier", "partition_key": "nvarchar", "data": "nvarchar"}
            self.maintenance = [None, None, 0, None, 0]

    async def execute(self, statement: Statement, /) -> Result:
        return Result((), self._answer(statement), 0)

    def _answer(self, statement: Statement) -> Sequence[Row]:
        asked, tables = statement.sql, Tables(self.dialect, TABLE)
        if "changefeed.migration" in asked and "max(version)" in asked:
            return [(self.version,)]
        if "renewals" in asked:
            return self._claims()
        answers: dict[str, Callable[[], Sequence[Row]]] = {
            self.catalog.server().sql: lambda: [self.server],
            self.catalog.objects(TABLE).sql: self._objects,
            self.catalog.columns(TABLE).sql: lambda: list(self.columns.items()),
            self.catalog.primary_key(TABLE).sql: lambda: [
                (name, name in self.partitioned_by) for name in self.key
            ],
            self.catalog.maintenance(TABLE).sql: lambda: [self.maintenance],
            self.catalog.hidden(TABLE, TABLE).sql: lambda: [(name,) for name in self.hidden],
            sql(tables.waiting()): lambda: [
                (shard_id, rows, NOW - timedelta(seconds=age_s), NOW)
                for shard_id, (rows, age_s) in self.waiting.items()
            ],
            sql(tables.last_positions()): lambda: list(self.last.items()),
            sql(tables.first_position(0, START)): lambda: self._behind(statement),
            # What waits has no row any more.
            sql(tables.numbered(0, START, 1)): list,
            sql(tables.last_position(0)): lambda: [
                (ulid,) for shard_id, ulid in self.feed.items() if shard_id == statement.parameters[0]
            ],
            sql(self.dialect.damage(TABLE)): lambda: [(name,) for name in self.damage],
            sql(self.dialect.size(TABLE)): lambda: [(1000, 2**20)],
        }
        return answers[asked]()

    def _objects(self) -> Sequence[Row]:
        return [
            (purpose, rights is not None, *(name in (rights or ()) for name in RIGHTS))
            for purpose, rights in self.rights.items()
        ]

    def _claims(self) -> Sequence[Row]:
        self._looks += 1
        return [
            (shard_id, self.cursors[shard_id], owner, 1, 0 if shard_id in self.silent else self._looks, None)
            for shard_id, owner in self.owners.items()
        ]

    def _behind(self, statement: Statement) -> Sequence[Row]:
        shard_id, cursor, _ = statement.parameters
        found = self.feed.get(shard_id, START)
        return [(found,)] if found > getattr(cursor, "bytes", cursor) else []

    async def listen(self, channel: str, /) -> None:
        raise NotImplementedError

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed = True


def sql(operation: Operation[T]) -> str:
    return next(operation).sql


@pytest.fixture
def postgresql() -> Database:
    return Database(POSTGRESQL)


@pytest.fixture
def sqlserver() -> Database:
    return Database(SQLSERVER)


async def trouble(database: Database) -> list[Finding]:
    found = await DatabaseCheck(database, database.catalog, FEED).findings()
    return [finding for finding in found if finding.level is not Level.OK]


def test_a_renewal_is_seen_at_once_however_long_claims_last() -> None:
    database = Database(POSTGRESQL)

    async def seconds() -> float:
        await DatabaseCheck(database, database.catalog, replace(FEED, claim_s=300.0)).findings()
        return asyncio.get_running_loop().time()

    assert virtual_time.run(seconds()) == 0.25


@pytest.mark.parametrize("catalog", [POSTGRESQL, SQLSERVER])
async def test_a_sound_outbox_gives_nothing_but_ok(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(catalog)

    async def connect(_: SqlFeed) -> Database:
        return database

    monkeypatch.setattr("outbox_relay.operator.backends.sql.check.connect", connect)
    monkeypatch.setattr("outbox_relay.operator.backends.sql.check.catalog_of", lambda _: catalog)

    assert await check(FEED) == [
        Finding.ok(said)
        for said in (
            f"SQL is a database of {catalog.engine} that can be reached",
            f"the schema changefeed has version {database.version}",
            f"SQL_FEED '{TABLE}' is set up",
            f"SQL_FEED '{TABLE}' has the columns id, partition_key, data and the primary key id",
            f"this login may read SQL_FEED '{TABLE}' and store how far it has come",
            "this login may read and write the quarantine, relay.item",
            f"SQL_FEED '{TABLE}' is read: each of its 2 shard(s) has a living owner",
            f"no event of SQL_FEED '{TABLE}' waits for longer than PT5M to be published",
        )
    ]
    assert database.closed


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DatabaseError("Login failed for user 'relay'"), "refuses: "),
        (ClientAuthenticationError("no token"), "refuses: "),
        (DatabaseError("timed out"), "cannot be reached, or ended the connection: "),
        (OSError("no way"), "cannot be reached"),
    ],
)
async def test_a_server_that_does_not_answer_is_all_that_is_reported(
    monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    async def connect(_: SqlFeed) -> None:
        raise error

    monkeypatch.setattr("outbox_relay.operator.backends.sql.check.connect", connect)

    (finding,) = await check(SqlFeed("Server=h", FEED.identity, TABLE, 2, 10.0))

    assert (finding.level, finding.unavailable) == (Level.ERROR, True)
    assert finding.what.startswith("the SQL Server server ")
    assert says in finding.what


def server(index: int, value: object) -> Callable[[Database], None]:
    return lambda database: database.server.__setitem__(index, value)


def maintenance(index: int, value: object) -> Callable[[Database], None]:
    return lambda database: database.maintenance.__setitem__(index, value)


def without(purpose: str, right: str) -> Callable[[Database], None]:
    def change(database: Database) -> None:
        rights = database.rights[purpose]
        assert rights is not None
        rights.remove(right)

    return change


def having(**changes: object) -> Callable[[Database], None]:
    """Attributes of the database; a dictionary is put into the one that is there."""

    def change(database: Database) -> None:
        for name, value in changes.items():
            present = getattr(database, name)
            setattr(database, name, {**present, **value} if isinstance(value, dict) else value)

    return change


@pytest.mark.parametrize(
    ("change", "level", "says"),
    [
        (server(0, True), Level.ERROR, "transactions of this login are read-only"),
        (server(2, False), Level.WARNING, "autovacuum is off for this server"),
        (having(version=NEWEST - 1), Level.ERROR, f"this relay works with version {NEWEST}"),
        (having(version=NEWEST + 1), Level.ERROR, f"this relay knows version {NEWEST} at most"),
        (having(hidden=[TABLE]), Level.ERROR, f"row-level security may hide rows of {TABLE}"),
        (without("migration", "select"), Level.UNKNOWN, "version of the schema changefeed cannot be read"),
        (having(key=[]), Level.ERROR, "has the primary key (), not (id)"),
        (having(key=["id", "at"]), Level.ERROR, "has the primary key (id, at), not (id)"),
        (having(columns={"id": "bytea"}), Level.ERROR, "the column id of SQL_FEED"),
        (having(columns={"partition_key": "json"}), Level.ERROR, "column partition_key of"),
        (having(columns={"data": "xml"}), Level.ERROR, "has the type xml"),
        (without("feed", "select"), Level.ERROR, f"needs: select on feed:{TABLE}"),
        (without("claim", "update"), Level.ERROR, f"needs: update on claim:{TABLE}"),
        (without("read_feed", "execute"), Level.ERROR, f"needs: execute on read_feed:{TABLE}"),
        (without("events", "select"), Level.ERROR, f"needs: select on {TABLE}"),
        (without("quarantine", "insert"), Level.ERROR, "lacks insert on relay.item"),
        (maintenance(0, 2), Level.ERROR, "has a cache of 2"),
        (maintenance(2, True), Level.WARNING, "nobody has decided how long positions"),
        (maintenance(3, "outbox:x"), Level.WARNING, "is off for outbox:x"),
        (maintenance(4, 3601.0), Level.WARNING, "a transaction of this database has been open for 1.0 hours"),
        (without("outbox", "select"), Level.UNKNOWN, "the rows in the outbox table"),
        (
            having(waiting={-1: (1, 0.0), 1: (9, 0.0), 2: (3, 400.0)}),
            Level.ERROR,
            "has 4 row(s) in shards that nobody reads (1 in shard -1, 3 in shard 2): SQL_SHARDS is 2",
        ),
        (
            having(waiting=dict.fromkeys(range(2, 14), (1, 0.0))),
            Level.ERROR,
            "1 in shard 11 and 2 more)",
        ),
        (
            having(feed={2: position(1)}, owners={2: None}, cursors={2: START}),
            Level.ERROR,
            "not published in shard 2, which a relay has read before: SQL_SHARDS is 2",
        ),
        (
            having(cursors={1: position(1)}),
            Level.ERROR,
            "cursor is ahead of the last position of SQL_FEED 'outbox.domain_event' in shard 1",
        ),
        (having(owners={0: None}), Level.ERROR, "no process reads shard 0"),
        (having(silent={1}), Level.ERROR, "the process that reads shard 1"),
        (having(waiting={1: (2, 301.0)}), Level.WARNING, "the oldest for PT5M1S, in shard 1"),
        (having(feed={0: position(400)}), Level.WARNING, "the oldest for PT6M40S, in shard 0"),
    ],
)
async def test_one_thing_that_is_wrong_is_one_finding_with_a_remedy(
    postgresql: Database, change: Callable[[Database], None], level: Level, says: str
) -> None:
    change(postgresql)

    (finding,) = await trouble(postgresql)

    assert (finding.level, finding.unavailable) == (level, False)
    assert says in finding.what
    assert finding.remedy


@pytest.mark.parametrize(
    ("change", "level", "says"),
    [
        (server(1, 0), Level.ERROR, "READ_COMMITTED_SNAPSHOT is off"),
        (maintenance(2, 1), Level.WARNING, "nobody has decided how long positions"),
        (
            having(columns={"id": "varchar", "partition_key": "char"}),
            Level.WARNING,
            "stores id, partition_key as varchar",
        ),
    ],
)
async def test_what_can_be_wrong_with_sql_server_alone(
    sqlserver: Database, change: Callable[[Database], None], level: Level, says: str
) -> None:
    change(sqlserver)

    (finding,) = await trouble(sqlserver)

    assert (finding.level, says in finding.what) == (level, True)


@pytest.mark.parametrize(
    "change",
    [
        having(waiting={0: (2, 300.0)}),
        having(feed={0: position(300)}),
        having(feed={0: position(1)}, cursors={0: position(1)}),
        maintenance(4, 3600.0),
        having(columns={"id": "uuid", "partition_key": "bigint", "data": "text"}),
    ],
)
async def test_what_is_within_its_bounds_is_ok(postgresql: Database, change: Callable[[Database], None]) -> None:
    change(postgresql)

    assert await trouble(postgresql) == []


async def test_the_functions_of_sql_server_read_the_feed_with_their_owners_rights(sqlserver: Database) -> None:
    without("feed", "select")(sqlserver)

    assert await trouble(sqlserver) == []


async def test_what_this_login_may_not_know_of_the_maintenance_is_no_finding(sqlserver: Database) -> None:
    without("outbox_feed", "select")(sqlserver)
    maintenance(2, 1)(sqlserver)

    assert await trouble(sqlserver) == []


async def test_of_a_shard_that_cannot_be_read_it_is_not_known_whether_its_cursor_is_ahead(
    postgresql: Database,
) -> None:
    without("state", "select")(postgresql)
    having(cursors={1: position(1)})(postgresql)

    assert await trouble(postgresql) == []


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (("migration", "outbox_feed", "has_news"), "the schema changefeed is not installed"),
        (("has_news",), "is not set up, or this login may not see it"),
    ],
)
async def test_without_a_feed_nothing_else_is_looked_at(
    postgresql: Database, missing: tuple[str, ...], says: str
) -> None:
    postgresql.rights |= dict.fromkeys(missing)

    (finding,) = await trouble(postgresql)

    assert says in finding.what
    assert "python -m relay install" in str(finding.remedy)


async def test_an_event_table_that_is_gone_hides_its_columns(postgresql: Database) -> None:
    postgresql.rights["events"], postgresql.columns, postgresql.key = None, {}, []

    findings = await trouble(postgresql)

    assert ["there is no such table" in finding.what for finding in findings] == [True]


async def test_a_partitioned_table_has_the_columns_that_it_is_partitioned_by_in_its_key(
    postgresql: Database,
) -> None:
    having(key=["id", "at"], partitioned_by=["at"])(postgresql)

    found = await DatabaseCheck(postgresql, POSTGRESQL, FEED).findings()

    assert [each.level for each in found if "primary key id, at" in each.what] == [Level.OK]
    assert [each.what for each in found if each.level is Level.ERROR] == []


@pytest.mark.parametrize(("age_s", "growth"), [(3599, ""), (3600, ", which is 24.0 MiB a day")])
async def test_the_growth_of_a_feed_is_shown_once_it_is_an_hour_old(
    postgresql: Database, age_s: float, growth: str
) -> None:
    having(feed={0: position(age_s)}, last={0: position(0)}, cursors={0: position(age_s)})(postgresql)

    found = await DatabaseCheck(postgresql, POSTGRESQL, FEED).findings()

    (size,) = [each.what for each in found if "the feed of" in each.what]
    assert size.partition(" in ")[2] == f"1.0 MiB{growth}"


@pytest.mark.parametrize(
    "statement",
    [
        SQLSERVER.server(),
        SQLSERVER.objects("outbox.a]b"),
        SQLSERVER.columns(TABLE),
        SQLSERVER.primary_key(TABLE),
        SQLSERVER.maintenance(TABLE),
        next(TABLES.waiting()),
        next(TABLES.last_position(0)),
        next(TABLES.last_positions()),
        next(TABLES.first_position(0, START)),
        next(TABLES.positions("a")),
        next(TABLES.position(0, START, "a")),
        next(TABLES.numbered(0, START, 500)),
        next(TABLES.unnumbered(0, 0, 500)),
        next(TABLES.numbered_of_key("k", 500)),
        next(TABLES.unnumbered_of_key("k", 500)),
        next(TABLES.ids_between(0, START, bytes(16), "k")),
        next(TABLES.rows("k", ["a", "b"])),
        next(TABLES.append(0, "a", ["id", "at"])),
        next(TABLES.row({"id": "a", "at": "1"})),
        SQLSERVER.hidden(TABLE, TABLE),
        next(SqlServerDialect().damage(TABLE)),
    ],
)
def test_what_is_asked_of_sql_server_is_t_sql(statement: Statement) -> None:
    from sqlfluff import parse

    assert statement.sql.count("?") == len(statement.parameters)
    # Raises where a part of it cannot be parsed.
    parse(statement.sql.replace("?", "@p"), dialect="tsql")
