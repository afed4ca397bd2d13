"""Which outbox a command works on, and connections to an SQL outbox for the duration of a command."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from enum import StrEnum

from azure.core.exceptions import AzureError

from changefeed import ChangefeedError
from changefeed.statements import AsyncSession, Statement
from relay.errors import ServiceError, UsageError, first_line
from relay.settings import Settings, SqlFeed
from relay.sql.connection import connect
from relay.sql.database import CONSUMER


class SourceKind(StrEnum):
    """The outboxes that can be set."""

    COSMOS = "cosmos"
    SQL = "sql"


def add_source_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--source`."""
    parser.add_argument(
        "--source",
        type=_source,
        metavar="cosmos|sql",
        help="which outbox; needed where both COSMOS and SQL are set",
    )


def _source(text: str) -> SourceKind:
    if text not in list(SourceKind):
        raise argparse.ArgumentTypeError(f"{text!r} is not an outbox: write cosmos or sql")
    return SourceKind(text)


def choose_source(settings: Settings, wanted: SourceKind | None) -> SourceKind:
    """The outbox to work on.

    Raises:
        UsageError: The wanted one is not set, or both are set and none is wanted.
    """
    present = [SourceKind.COSMOS] if settings.cosmos is not None else []
    present += [SourceKind.SQL] if settings.sql is not None else []
    if wanted is None and len(present) == 1:
        return present[0]
    if wanted is None:
        raise UsageError("COSMOS and SQL are both set: add --source cosmos or --source sql")
    if wanted not in present:
        raise UsageError(f"--source {wanted}: {wanted.upper()} is not set")
    return wanted


def for_source(settings: Settings, kind: SourceKind) -> Settings:
    """The settings with this outbox alone."""
    return replace(settings, sql=None) if kind is SourceKind.COSMOS else replace(settings, cosmos=None)


def sql_feed(settings: Settings) -> SqlFeed:
    """The SQL outbox of settings that have one."""
    assert settings.sql is not None
    return settings.sql


@asynccontextmanager
async def open_session(feed: SqlFeed) -> AsyncIterator[AsyncSession]:
    """A session on the SQL outbox.

    Raises:
        ServiceError: The server cannot be reached, or refuses.
    """
    with explaining_feed_errors(feed):
        session = await connect(feed)
    try:
        yield session
    finally:
        await session.close()


async def read_cursors(session: AsyncSession, feed: SqlFeed) -> dict[int, bytes]:
    """How far the relay is in each shard that it has claimed. Raises ServiceError."""
    claims = f"changefeed.{session.dialect.quoted(f'claim:{feed.feed}')}"
    with explaining_feed_errors(feed):
        found = await session.execute(
            Statement(f"select shard_id, last_ulid from {claims} where consumer = ?", (CONSUMER,))
        )
    return {shard_id: bytes(cursor) for shard_id, cursor in found.rows}


@contextmanager
def explaining_feed_errors(feed: SqlFeed) -> Iterator[None]:
    """Raise errors of the SQL outbox as a ServiceError that names what to check."""
    try:
        yield
    except (ChangefeedError, AzureError, OSError) as error:
        raise ServiceError(
            f"the SQL outbox {feed.feed} cannot be read or written: {first_line(error)} Check SQL, SQL_FEED, and "
            "the rights of this login: python -m relay check"
        ) from error
