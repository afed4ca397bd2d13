"""Installing the schema, and setting up and dropping feeds."""

from __future__ import annotations

from importlib import resources

from outbox_relay.changefeed.statements import (
    AsyncSession,
    Dialect,
    Migration,
    Operation,
    Session,
    Statement,
    run,
    run_async,
)
from outbox_relay.changefeed.tables import Tables


def migrations(dialect: str) -> list[Migration]:
    """Return all migrations for `postgresql` or `sqlserver`, in order."""
    folder = resources.files("outbox_relay.changefeed").joinpath(dialect, "migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name[:4]), file.name, file.read_text(encoding="utf-8")) for file in files]


def install(session: Session) -> list[str]:
    """Bring the schema `changefeed` up to date; harmless if it is already, or if another process does the same.

    Returns:
        The names of the migrations that were applied.

    Raises:
        SetupError: The schema was installed by a later version of this library, or by one before 0.1.0.
        DatabaseError: The session lacks a right, or the database cannot be reached.
    """
    return run(session, session.dialect.install(migrations(session.dialect.name)))


async def install_async(session: AsyncSession) -> list[str]:
    """Bring the schema `changefeed` up to date; harmless if it is already, or if another process does the same.

    See `install` for the arguments and errors.
    """
    return await run_async(session, session.dialect.install(migrations(session.dialect.name)))


def setup_feed(
    session: Session, table: str, *, notify: bool = False, roles: bool = True, keep: str | None = None
) -> None:
    """Set up the feed of a table that has a primary key.

    Args:
        session: A session of a role that may create tables, functions and, with `roles`, roles.
        table: `schema.Table`, as it is spelt in the catalog.
        notify: Whether commits wake readers that wait (PostgreSQL). Writers pay for it: a commit that notifies
            holds a lock of the whole server while it is flushed. Without, readers look every 4 to 150 ms.
        roles: Whether to make the roles `changefeed.writers:schema.Table` and `changefeed.readers:schema.Table`.
        keep: Retention of positions: `30d`, `12h` or `forever`. None configures none, so everything is kept.

    Raises:
        ArgumentError: There is no such table, it cannot have a feed, or it has one already.
        DatabaseError: The session lacks a right, or the database cannot be reached.
    """
    run(session, session.dialect.setup_feed(table, notify, roles, keep))


async def setup_feed_async(
    session: AsyncSession, table: str, *, notify: bool = False, roles: bool = True, keep: str | None = None
) -> None:
    """Set up the feed of a table that has a primary key. See `setup_feed` for the arguments and errors."""
    await run_async(session, session.dialect.setup_feed(table, notify, roles, keep))


def repair(session: Session) -> list[str]:
    """Make functions and rights of feeds again that went with their event tables; harmless if none are missing.

    Returns:
        The tables whose feeds were repaired. What waits on them stays.

    Raises:
        SetupError: A table was created again with another primary key.
        DatabaseError: The session lacks a right, or the database cannot be reached.
    """
    return run(session, _repair(session.dialect))


async def repair_async(session: AsyncSession) -> list[str]:
    """Make functions and rights of feeds again that went with their event tables; see `repair`."""
    return await run_async(session, _repair(session.dialect))


def _repair(dialect: Dialect) -> Operation[list[str]]:
    feeds = yield Statement("select table_name from changefeed.outbox_feed order by table_name")
    repaired = []
    for (table,) in feeds.rows:
        if (yield from Tables(dialect, table).exist()) and (yield from dialect.damage(table)):
            yield from dialect.repair(table)
            repaired.append(table)
    return repaired


def set_keep(session: Session, table: str, keep: str) -> None:
    """Set how long the positions of a feed are kept: `30d`, `12h` or `forever`. Raises ArgumentError."""
    run(session, session.dialect.set_keep(table, keep))


async def set_keep_async(session: AsyncSession, table: str, keep: str) -> None:
    """Set how long the positions of a feed are kept: `30d`, `12h` or `forever`. Raises ArgumentError."""
    await run_async(session, session.dialect.set_keep(table, keep))


def drop_feed(session: Session, table: str) -> None:
    """Remove a feed with its outbox and its positions; the event table stays. Raises ArgumentError."""
    run(session, session.dialect.drop_feed(table))


async def drop_feed_async(session: AsyncSession, table: str) -> None:
    """Remove a feed with its outbox and its positions; the event table stays. Raises ArgumentError."""
    await run_async(session, session.dialect.drop_feed(table))
