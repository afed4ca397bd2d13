"""Checks an SQL outbox, with the rights of this login, against what the relay's guarantees require."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence

from azure.core.exceptions import ClientAuthenticationError

from outbox_relay.changefeed import SetupError
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import AsyncSession, Row, Statement, run_async
from outbox_relay.operator.backends.sql.backlog import Backlog
from relay.backends.findings import Finding
from relay.backends.sql.catalog import RIGHTS, Catalog, catalog_of
from relay.backends.sql.database import FAILURES, connect
from relay.backends.sql.missing import VISIBLE
from relay.config.settings import SqlFeed
from relay.core.errors import first_line
from relay.core.remedy import INSTALL, Remedy, Sentence

# Maximum seconds of all that is asked, apart from the wait for signs of life.
_TIMEOUT_S = 30.0

# Messages of a server that refuses a login or a database.
_REFUSALS = ("FATAL:", "Login failed", "Cannot open database", "Invalid authorization")

# Types that reach the relay as text.
_TEXT = {
    *("text", "character varying", "character", "citext", "name"),
    *("nvarchar", "nchar", "varchar", "char", "ntext", "sysname"),
}
_IDENTIFIERS = _TEXT | {"uuid", "uniqueidentifier", "bigint", "integer", "int", "smallint"}
_DATA = _TEXT | {"json", "jsonb"}
_TYPES = {"id": _IDENTIFIERS, "key": _IDENTIFIERS, "data": _DATA}

_LONG_TRANSACTION_S = 3600.0

_NOT_INSTALLED = Finding.error(
    "the schema changefeed is not installed in this database, or this login may not see it",
    Sentence.of("Install it: {}. Or correct the database in SQL.", INSTALL),
)


async def check(feed: SqlFeed) -> list[Finding]:
    """Return the findings about the database, the feed and its shards."""
    catalog = catalog_of(feed.connection_string)
    session = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            session = await connect(feed)
        async with asyncio.timeout(_TIMEOUT_S + feed.claim_s):
            return await DatabaseCheck(session, catalog, feed).findings()
    except FAILURES as error:
        return [_unavailable(catalog.engine, error)]
    finally:
        if session is not None:
            await session.close()


def required_columns(feed: SqlFeed) -> dict[str, set[str]]:
    """Return the columns that an event table needs, with the types that each may have."""
    return {feed.selection.fields.column_of(name): kinds for name, kinds in _TYPES.items()}


def _unavailable(engine: str, error: Exception) -> Finding:
    said = first_line(error)
    if isinstance(error, SetupError):
        # A driver that is missing, a string that cannot be read, or a pooler that drops the session's settings.
        return Finding.error(f"SQL cannot be used: {said}", "Correct SQL.", unavailable=True)
    if isinstance(error, ClientAuthenticationError) or any(words in said for words in _REFUSALS):
        return Finding.error(
            f"the {engine} server refuses: {said}",
            "Check the database and the login in SQL, or SQL__credential and SQL__clientId.",
            unavailable=True,
        )
    return Finding.error(
        f"the {engine} server cannot be reached, or ended the connection: {said}",
        "Check the server in SQL, and the network between here and there.",
        unavailable=True,
    )


class DatabaseCheck:
    """The findings with the rights of a login. Raises ChangefeedError."""

    def __init__(self, session: AsyncSession, catalog: Catalog, feed: SqlFeed) -> None:
        self._session = session
        self._catalog = catalog
        self._feed = feed
        self._subject = f"SQL_FEED '{feed.feed}'"
        # By purpose, the rights of this login; None if there is no such table or routine, or it may not see it.
        self._rights: dict[str, Sequence[str] | None] = {}

    async def findings(self) -> list[Finding]:
        ((is_read_only, snapshots, autovacuum, now_ms),) = await self._rows(self._catalog.server())
        found = [Finding.ok(f"SQL is a database of {self._catalog.engine} that can be reached")]
        found += _server(is_read_only, snapshots)
        objects = self._catalog.objects(self._feed.feed, self._feed.quarantine_table)
        for purpose, exists, *held in await self._rows(objects):
            rights = [name for name, has in zip(RIGHTS, held, strict=True) if has]
            self._rights[purpose] = rights if exists else None
        if not any(self._exists(purpose) for purpose in ("migration", "outbox_feed", "has_news")):
            return [*found, _NOT_INSTALLED]
        found.append(await self._version())
        if not self._exists("has_news"):
            missing = Finding.error(
                f"{self._subject} is not set up, or this login may not see it",
                Sentence.of(
                    "Set it up: {}. Or correct SQL_FEED: schema.Table, with the capital letters of the catalog.",
                    INSTALL,
                ),
            )
            return [*found, missing]
        found.append(Finding.ok(f"{self._subject} is set up"))
        found += [finding async for finding in self._events()]
        found += [each async for each in self._damage()]
        found += [self._reading(), self._quarantine()]
        hidden = await self._rows(self._catalog.hidden(self._feed.feed, self._feed.quarantine_table))
        found += [_hidden(table) for (table,) in hidden]
        found += [finding async for finding in self._maintenance(autovacuum)]
        readable = {purpose for purpose, rights in self._rights.items() if rights and "select" in rights}
        if self._feed.feed in {table for (table,) in hidden}:
            readable.discard("events")
        return found + await Backlog(self._session, self._feed, now_ms, readable).findings()

    def _exists(self, purpose: str) -> bool:
        return self._rights[purpose] is not None

    def _lacking(self, purpose: str, needed: Sequence[str]) -> list[str]:
        return [right for right in needed if right not in (self._rights[purpose] or ())]

    async def _version(self) -> Finding:
        if self._lacking("migration", ("select",)):
            return Finding.unknown(
                "the version of the schema changefeed cannot be read with these rights",
                "Run check with a login that may select from changefeed.migration. The app itself need not.",
            )
        ((version,),) = await self._rows(Statement("select coalesce(max(version), 0) from changefeed.migration"))
        newest = migrations(self._session.dialect.name)[-1].version
        if version < newest:
            return Finding.error(
                f"the schema changefeed has version {version}, and this relay works with version {newest}",
                Sentence("Upgrade it: ", INSTALL, "."),
            )
        if version > newest:
            return Finding.error(
                f"the schema changefeed has version {version}, and this relay knows version {newest} at most",
                "Deploy the relay with the version of changefeed that installed the schema.",
            )
        return Finding.ok(f"the schema changefeed has version {version}")

    async def _events(self) -> AsyncIterator[Finding]:
        """Yield the findings about the columns of the event table."""
        if not self._exists("events"):
            said = f"{self._subject} has a feed, but there is no such table, or this login may not see it"
            remedy = Sentence("Create the table again, then ", INSTALL, "; or grant the right to select from it.")
            yield Finding.error(said, remedy)
            return
        table = self._feed.feed
        columns = {name: kind for name, kind, *_ in await self._rows(self._catalog.columns(table))}
        partitioned_by = {name: by for name, by in await self._rows(self._catalog.primary_key(table))}  # noqa: C416
        key = list(partitioned_by)
        required = required_columns(self._feed)
        missing = [name for name in required if name not in columns]
        if missing:
            yield Finding.error(
                f"{self._subject} has no column {' and no column '.join(missing)}: no event of it can become a "
                "message",
                f"Add the columns {', '.join(required)}, let SQL_FEED name their table, or name others "
                "in [fields] of relay.toml.",
            )
        wrong = {name: columns[name] for name, kinds in required.items() if columns.get(name, "text") not in kinds}
        for name, kind in wrong.items():
            yield Finding.error(
                f"the column {name} of {self._subject} has the type {kind}: its events would all be quarantined",
                "Use a text type (nvarchar on SQL Server), json or jsonb for the data, and for id and key also a "
                "UUID or an integer.",
            )
        if narrow := [name for name in required if columns.get(name) in self._catalog.narrow]:
            yield Finding.warning(
                f"{self._subject} stores {', '.join(narrow)} as varchar: unless the collation is a UTF-8 one, "
                "letters that it does not have become question marks, and two keys may become one",
                "Use nvarchar.",
            )
        own = self._feed.selection.fields.column_of("id")
        if own in key and all(partitioned_by[name] for name in key if name != own):
            if not missing and not wrong:
                yield self._columns_are_right(required, key)
        else:
            yield Finding.error(
                f"{self._subject} has the primary key ({', '.join(key)}), not ({own}): two events with one id can "
                "be written, and the second is dropped as a duplicate",
                f"Make {own} the primary key, then set the feed up again. Or name the primary key, if it is one "
                "column, as fields.id of relay.toml.",
            )

    def _columns_are_right(self, required: Collection[str], key: Sequence[str]) -> Finding:
        said = f"{self._subject} has the columns {', '.join(required)} and the primary key {', '.join(key)}"
        if len(key) == 1:
            return Finding.ok(said)
        return Finding.ok(
            f"{said}, as a table has that is partitioned: the database does not refuse a second event with one "
            "id, which is dropped as a duplicate"
        )

    async def _damage(self) -> AsyncIterator[Finding]:
        """Yield the findings about functions and rights that went with the event table when it was replaced."""
        if not self._exists("events") or not self._catalog.shows_all:
            return
        if lacking := await run_async(self._session, self._session.dialect.damage(self._feed.feed)):
            yield Finding.error(
                f"{self._subject} lacks {', '.join(lacking)}: its event table was replaced, or they were dropped",
                Sentence("Make them again: ", INSTALL, ". What waits on the feed stays."),
            )

    def _reading(self) -> Finding:
        """Return the finding about the rights to read the feed and to store cursors."""
        table = self._feed.feed
        lacking = [
            f"{right} on {table if purpose == 'events' else f'{purpose}:{table}'}"
            for purpose, needed in self._catalog.needed.items()
            # Where every login sees all objects, one that is not there is no matter of rights.
            if self._exists(purpose) or not self._catalog.shows_all
            for right in self._lacking(purpose, needed)
        ]
        if lacking:
            return Finding.error(
                f"this login lacks what reading {self._subject} needs: {', '.join(lacking)}",
                Sentence(f'Grant it the role "changefeed.readers:{table}". If it has that role: ', INSTALL, "."),
            )
        return Finding.ok(f"this login may read {self._subject} and store how far it has come")

    def _quarantine(self) -> Finding:
        table = self._feed.quarantine_table
        if not self._exists("quarantine"):
            return Finding.error(
                f"the table {table} of the quarantine does not exist, or this login may not see it: an event "
                "that can never be sent blocks its shard",
                Sentence("Create it: ", INSTALL, ". Then grant the rights on it."),
            )
        if lacking := self._lacking("quarantine", ("select", "insert", "update", "delete")):
            return Finding.error(
                f"this login lacks {', '.join(lacking)} on {table}, the table of the quarantine: an event that "
                "can never be sent blocks its shard",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, and on PostgreSQL USAGE ON SCHEMA relay.",
            )
        return Finding.ok(f"this login may read and write the quarantine, {table}")

    async def _maintenance(self, autovacuum: bool | None) -> AsyncIterator[Finding]:
        """Yield the findings about the factors of reading speed, if this login may see them."""
        cache, notifies, undecided, without, oldest_s = None, None, False, None, 0.0
        if not self._lacking("outbox_feed", ("select",)):
            statement = self._catalog.maintenance(self._feed.feed)
            ((cache, notifies, undecided, without, oldest_s),) = await self._rows(statement)
        if cache not in (None, 1):
            yield Finding.error(
                f"the sequence of the outbox of {self._subject} has a cache of {cache}: its numbers do not follow "
                "the order of commits, so every read is refused",
                'Remove it: ALTER TABLE changefeed."outbox:…" ALTER COLUMN order_sequence SET CACHE 1.',
            )
        if notifies is False:
            said = f"{self._subject} notifies nobody of commits: an idle relay looks for them every 150 ms"
            yield Finding.ok(said)
        if undecided:
            yield Finding.warning(
                f"nobody has decided how long positions of {self._subject} are kept: all are, and the feed grows "
                "for ever",
                Sentence.of(
                    "Decide it: {}, or forever.",
                    Remedy("keep", ("schema.Table", "30d"), program="outbox_relay.changefeed"),
                ),
            )
        if autovacuum is False or without:
            yield Finding.warning(
                f"autovacuum is off for {without or 'this server'}: the rows that the relay has taken stay in the "
                "outbox table, and every read gets slower",
                "Turn it on: autovacuum = on for the server, autovacuum_enabled = true for each table.",
            )
        if oldest_s > _LONG_TRANSACTION_S:
            yield Finding.warning(
                f"a transaction of this database has been open for {oldest_s / 3600:.1f} hours: nothing that was "
                "deleted since can be vacuumed, and every read of the outbox gets slower",
                "Find it in pg_stat_activity (xact_start) or pg_prepared_xacts, and end it.",
            )

    async def _rows(self, statement: Statement) -> Sequence[Row]:
        return (await self._session.execute(statement)).rows


def _hidden(table: str) -> Finding:
    return Finding.error(
        f"row-level security may hide rows of {table} from this login: a row that it does not see is not known to "
        "be deleted, so the relay waits",
        f"{VISIBLE}.",
    )


def _server(is_read_only: bool, snapshots: bool | None) -> Iterator[Finding]:
    if snapshots is not None and not snapshots:
        yield Finding.error(
            "READ_COMMITTED_SNAPSHOT is off in this database: a scan would miss events, so every read is refused",
            "Turn it on: ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE.",
        )
    if is_read_only:
        yield Finding.error(
            "transactions of this login are read-only in this database: no event gets a position, and no cursor "
            "is stored",
            "Connect to the primary server, or reset default_transaction_read_only of the login and of the "
            "database once they may change again.",
        )
