"""`python -m relay install`: makes in an SQL database what the relay needs there."""

from __future__ import annotations

import argparse
from pathlib import Path

from azure.core.exceptions import AzureError

from changefeed import ChangefeedError, SetupError, install_async, set_keep_async, setup_feed_async
from changefeed.statements import AsyncSession, Statement, run_async
from relay.cli.results import ExitCode, Result
from relay.errors import ServiceError, UsageError, first_line
from relay.settings import Settings, SqlFeed
from relay.sql import install
from relay.sql.connection import connect

EXAMPLES = """\
examples:
  python -m relay install --keep 30d
  python -m relay install --keep 30d --create-table
  python -m relay install --keep forever --env-file .local/stack.env --no-roles

Creates the schema changefeed, the feed of the event table SQL_FEED, and the quarantine's table relay.item. What
exists already stays as it is, except how long positions are kept. It needs the rights of the database's owner,
unlike every other command.
--create-table also creates the event table, with the columns that docs/sql.md describes."""

_TABLES = Path(install.__file__).parent / "tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `install`."""
    parser.add_argument(
        "--create-table", action="store_true", help="also create the event table, if there is none"
    )
    parser.add_argument(
        "--keep",
        required=True,
        metavar="DURATION",
        help="how long positions that every consumer has read are kept, such as 30d or 12h, or forever",
    )
    parser.add_argument("--no-roles", action="store_true", help="do not create the roles of the feed")
    parser.add_argument(
        "--notify",
        action="store_true",
        help="PostgreSQL: commits wake readers, and writers pay for it",
    )
    parser.add_argument("--no-notify", action="store_true", help="readers poll (default)")


async def run(arguments: argparse.Namespace, settings: Settings) -> Result:
    """Make what is missing.

    Raises:
        UsageError: There is no SQL outbox, or the event table cannot have a feed.
        ServiceError: The database cannot be reached, or refuses.
    """
    if settings.sql is None:
        raise UsageError("SQL is not set: set it to the connection string of the database that has the outbox")
    try:
        session = await connect(settings.sql)
        try:
            done = await _install(session, settings.sql, arguments)
        finally:
            await session.close()
    except (SetupError, ValueError) as error:
        raise UsageError(str(error)) from error
    except (ChangefeedError, AzureError, OSError) as error:
        raise ServiceError(f"the database cannot be reached, or refuses: {first_line(error)}") from error
    return Result(ExitCode.OK, {"done": done}, done or ["Everything is there already."])


async def _install(session: AsyncSession, settings: SqlFeed, arguments: argparse.Namespace) -> list[str]:
    done = [f"applied {name} of changefeed" for name in await install_async(session)]
    await install.install(session)
    if arguments.create_table and await _create_table(session, settings.feed):
        done.append(f"made the table {settings.feed}")
    try:
        await run_async(session, session.dialect.channel(settings.feed))
    except SetupError:
        await setup_feed_async(
            session,
            settings.feed,
            notify=arguments.notify and not arguments.no_notify,
            roles=not arguments.no_roles,
            keep=arguments.keep,
        )
        done.append(f"set up the feed of {settings.feed}")
        return done
    found = await session.execute(
        Statement("select keep from changefeed.outbox_feed where table_name = ?", (settings.feed,))
    )
    if found.rows[0][0] != arguments.keep:
        await set_keep_async(session, settings.feed, arguments.keep)
        done.append(f"positions of {settings.feed} are kept: {arguments.keep}")
    return done


async def _create_table(session: AsyncSession, table: str) -> bool:
    """Make the event table and its schema; returns False where the table exists."""
    schema, _, name = table.partition(".")
    found = await session.execute(
        Statement(
            "select 1 from information_schema.tables where table_schema = ? and table_name = ?", (schema, name)
        )
    )
    if found.rows:
        return False
    quoted = session.dialect.quoted
    known = await session.execute(
        Statement("select 1 from information_schema.schemata where schema_name = ?", (schema,))
    )
    if not known.rows:
        await session.execute(Statement(f"create schema {quoted(schema)}"))
    text = (_TABLES / f"{session.dialect.name}.sql").read_text(encoding="utf-8")
    await session.execute(Statement(text.replace("{table}", f"{quoted(schema)}.{quoted(name)}")))
    return True
