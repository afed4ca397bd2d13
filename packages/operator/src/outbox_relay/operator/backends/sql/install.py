"""Installs what the relay needs in an SQL database: a feed of the event table, and the store of its quarantine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from outbox_relay.changefeed import SetupError, install_async, set_keep_async, setup_feed_async
from outbox_relay.changefeed.script import AsyncRecorder, missing_migrations
from outbox_relay.changefeed.statements import AsyncSession, Statement, run_async
from outbox_relay.changefeed.tables import Tables
from relay.backends.sql.database import FAILURES, connect
from relay.backends.sql.quarantine import in_table
from relay.config.settings import QUARANTINE_TABLE, SqlFeed
from relay.core.errors import ServiceError, UsageError, first_line
from relay.core.events import Reason

_MIGRATIONS = Path(__file__).parent / "migrations"
_TABLES = Path(__file__).parent / "tables"


async def install_outbox(
    feed: SqlFeed, *, keep: str, create_table: bool, roles: bool, notify: bool, generations: bool = False
) -> list[str]:
    """Create what is missing, and return a line for each action; existing objects stay unchanged, except `keep`.

    Args:
        feed: The database, and the event table.
        keep: Retention of positions that every consumer has read, such as `30d`, or `forever`.
        create_table: Whether to make the event table too.
        roles: Whether to make the roles of the feed.
        notify: Whether commits are to notify readers, on PostgreSQL.
        generations: Whether rules have generations, which need a table.

    Raises:
        UsageError: The event table cannot have a feed.
        ServiceError: The database cannot be reached, or refuses.
    """
    async with _session(feed) as session:
        done = [f"applied {name} of changefeed" for name in await install_async(session)]
        await install(session, feed.quarantine_table)
        if generations:
            await install_rules(session)
        if create_table and await _create_table(session, feed.feed):
            done.append(f"made the table {feed.feed}")
        return done + await _set_up_feed(session, feed.feed, keep=keep, roles=roles, notify=notify)


async def script_of(
    feeds: Sequence[SqlFeed],
    *,
    keep: str,
    create_table: bool,
    roles: bool,
    notify: bool,
    generations: bool = False,
) -> str:
    """Return the statements that `install_outbox` would run for the feeds of one database. Changes nothing.

    See `install_outbox` for the arguments and errors.
    """
    async with _session(feeds[0]) as session:
        version, missing = await run_async(session, missing_migrations(session.dialect))
        recorder = AsyncRecorder(session)
        for feed in feeds:
            table = feed.feed
            await install(recorder, feed.quarantine_table)
            if generations:
                await install_rules(recorder)
            if not (create_table and await _create_table(recorder, table)):
                await _check_table(session, table)
            if missing and version and await _has_feed(session, table):
                recorder.recorded.append(f"-- Then run `install --sql` again: it looks at the feed of {table}.")
            elif missing:
                await setup_feed_async(recorder, table, notify=notify, roles=roles, keep=keep)
            else:
                await _set_up_feed(recorder, table, keep=keep, roles=roles, notify=notify)
        # Several streams have the same event table.
        return session.dialect.script(missing, list(dict.fromkeys(recorder.recorded)))


def advice_for(feed: SqlFeed) -> str:
    """Return a sentence with the parts that each event has to have, and the reason under which others are kept."""
    fields = feed.selection.fields
    reason = Reason.NOT_MAPPED if fields.is_mapped else Reason.ACTION_NOT_STRING
    parts = "an action: a string in the column action, or as the member action of data"
    if fields.names_fields:
        places = {name: " or ".join(map(str, fields.of_columns(name))) for name in ("id", "key", "data", "action")}
        listed = [f"its {name} at {place}" for name, place in places.items()]
        parts = f"{', '.join(listed[:-1])}, and {listed[-1]}, a string"
    return f"Write each event of {feed.feed} with {parts}. One without goes to quarantine ({reason})."


@asynccontextmanager
async def _session(feed: SqlFeed) -> AsyncIterator[AsyncSession]:
    """Open a session of the owner. Raises UsageError and ServiceError as `install_outbox` does."""
    try:
        session = await connect(feed)
        try:
            yield session
        finally:
            await session.close()
    except (SetupError, ValueError) as error:
        raise UsageError(str(error)) from error
    except FAILURES as error:
        raise ServiceError(f"the database cannot be reached, or refuses: {first_line(error)}") from error


async def install(session: AsyncSession, table: str = QUARANTINE_TABLE) -> None:
    """Create the quarantine's table if it is missing. Raises ChangefeedError if the role may not."""
    for file in migrations(session.dialect.name):
        await session.execute(Statement(in_table(file.read_text(encoding="utf-8"), table), administers=True))


async def install_rules(session: AsyncSession) -> None:
    """Create the table of the rules' generations if it is missing. Raises ChangefeedError if the role may not."""
    for file in migrations(session.dialect.name, "rules"):
        await session.execute(Statement(file.read_text(encoding="utf-8"), administers=True))


def migrations(dialect: str, table: str = "item") -> list[Path]:
    """Return the files of a table for `postgresql` or `sqlserver`, in order; each is one batch."""
    return sorted((_MIGRATIONS / dialect).glob(f"*_{table}.sql"))


async def _set_up_feed(session: AsyncSession, table: str, *, keep: str, roles: bool, notify: bool) -> list[str]:
    found = await session.execute(
        Statement("select keep from changefeed.outbox_feed where table_name = ?", (table,))
    )
    if not found.rows:
        await setup_feed_async(session, table, notify=notify, roles=roles, keep=keep)
        return [f"set up the feed of {table}"]
    if not await _exists(session, table):
        raise SetupError(
            f"{table} has a feed, but there is no such table. Create it again, with its primary key: what waits "
            "on the feed stays. Or correct SQL_FEED"
        )
    done = []
    if lacking := await run_async(session, session.dialect.damage(table)):
        await run_async(session, session.dialect.repair(table))
        done.append(f"made what the feed of {table} lacked again: {', '.join(lacking)}")
    if found.rows[0][0] != keep:
        await set_keep_async(session, table, keep)
        done.append(f"positions of {table} are kept: {keep}")
    return done


async def _has_feed(session: AsyncSession, table: str) -> bool:
    found = Statement("select 1 from changefeed.outbox_feed where table_name = ?", (table,))
    return bool((await session.execute(found)).rows)


async def _exists(session: AsyncSession, table: str) -> bool:
    return await run_async(session, Tables(session.dialect, table).exist())


async def _check_table(session: AsyncSession, table: str) -> None:
    """Raise SetupError if there is no such event table, or the login may not see it."""
    if not await _exists(session, table):
        raise SetupError(
            f"there is no table {table}, or this login has no right on it. Create it, correct SQL_FEED, or add "
            "--create-table"
        )


async def _create_table(session: AsyncSession, table: str) -> bool:
    """Make the event table and its schema; returns False if the table exists."""
    if await _exists(session, table):
        return False
    schema, _, name = table.partition(".")
    quoted = session.dialect.quoted
    known = await session.execute(
        Statement("select 1 from information_schema.schemata where schema_name = ?", (schema,))
    )
    if not known.rows:
        await session.execute(Statement(f"create schema {quoted(schema)}", administers=True))
    text = (_TABLES / f"{session.dialect.name}.sql").read_text(encoding="utf-8")
    table_text = text.replace("{table}", f"{quoted(schema)}.{quoted(name)}")
    await session.execute(Statement(table_text, administers=True))
    return True
