"""Rows that a page lacks: deleted ones are passed, and hidden ones are waited for.

A row that a policy hides, or that a partition has which was detached, is not deleted. If its event were set aside
under its key alone, later events of the same partition key would overtake it, and nobody would know its content.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from outbox_relay.changefeed import DatabaseError, Entry
from outbox_relay.changefeed.statements import AsyncSession, Statement
from outbox_relay.changefeed.tables import Tables
from relay.config.settings import SqlFeed


async def vouch_for(session: AsyncSession, feed: SqlFeed, entries: Sequence[Entry]) -> None:
    """Raise DatabaseError if an entry has no row, and the row may exist."""
    column = feed.selection.fields.column_of("id")
    missing = [entry.key[column] for entry in entries if entry.row is None and column in entry.key]
    if not missing:
        return
    # Few apps ever meet a row that is not there.
    from relay.backends.sql.catalog import catalog_of

    catalog = catalog_of(feed.connection_string)
    hidden = await session.execute(catalog.hidden(feed.feed, feed.quarantine_table))
    if feed.feed in {name for (name,) in hidden.rows}:
        raise DatabaseError(
            f"{feed.feed} has no row of the event {missing[0]!r} that this login may see. {VISIBLE}"
        )
    question = catalog.detached(feed.feed)
    if question is not None:
        for schema, name in (await session.execute(question)).rows:
            await _check_detached(session, feed, f"{schema}.{name}", missing)


VISIBLE = (
    "Let a policy hide no row from this login. PostgreSQL: ALTER ROLE … BYPASSRLS, or ALTER TABLE … DISABLE ROW "
    "LEVEL SECURITY. SQL Server: except the login in the filter of the security policy"
)


async def _check_detached(session: AsyncSession, feed: SqlFeed, other: str, missing: Collection[Any]) -> None:
    table = feed.feed
    tables, events = Tables(session.dialect, table), Tables(session.dialect, other).events
    column = session.dialect.quoted(feed.selection.fields.column_of("id"))
    attach = f"Attach it again: ALTER TABLE {tables.events} ATTACH PARTITION {events}"
    asked = Statement(
        f"select {column} from {events} where {column} in ({', '.join('?' * len(missing))})", tuple(missing)
    )
    try:
        found = (await session.execute(asked)).rows
    except DatabaseError as error:
        if error.lost:
            raise
        raise DatabaseError(
            f"{table} has no row of the event {next(iter(missing))!r}. {other} has the columns of a partition and "
            f"is not one, and this login may not read it. {attach}. Or grant this login select on it, to see "
            "whether the row is there"
        ) from error
    if found:
        raise DatabaseError(
            f"the row of the event {found[0][0]!r} is in {other}, which is no partition of {table}. {attach}. To "
            f"go on without the event, delete its position: DELETE FROM {tables.feed} WHERE {column} = …"
        )
