"""`python -m relay replay`: publishes events again that are still in the outbox."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import AsyncIterator, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from changefeed.statements import AsyncSession
from changefeed.ulid import from_text
from relay.cli.committed import Outbox, Range, open_outbox
from relay.cli.ordered import ordered_sender
from relay.cli.quarantine.records import open_records
from relay.cli.replay.arguments import EXAMPLES, add_arguments, choice_of
from relay.cli.replay.cosmos import CosmosReading
from relay.cli.replay.reading import Reading
from relay.cli.replay.replaying import Replay
from relay.cli.replay.report import dry_result, finished_before, result_of
from relay.cli.replay.sql import SqlRange, SqlReading, feed_identity
from relay.cli.replay.state import ReplayIdentity, ReplayState
from relay.cli.results import Result
from relay.cli.sources import SourceKind, choose_source, open_session, read_cursors, sql_feed
from relay.cli.terminal import Terminal
from relay.connection_strings import ConnectionString
from relay.settings import Connection, Settings, SqlFeed

__all__ = ["EXAMPLES", "add_arguments", "run"]


async def run(arguments: argparse.Namespace, settings: Settings, terminal: Terminal) -> Result:
    """Publish the events again, or count what a replay would publish.

    Raises:
        UsageError: The options contradict each other, or the state file belongs to another replay.
        ServiceError: The outbox cannot be read, or the state file cannot be written.
    """
    source = choose_source(settings, arguments.source)
    asked = choice_of(arguments, settings, source)
    if source is SourceKind.SQL:
        # Its quarantine is in the same database.
        settings = replace(settings, cosmos=None)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(_open(settings, source))
        identity = ReplayIdentity(
            since=asked.since,
            until=asked.until,
            partition_key=arguments.partition_key,
            action=arguments.action,
            as_new=arguments.as_new,
            event_type=settings.event_type,
            container=await opened.identity(),
            topic=f"{_namespace(settings.servicebus)}/{settings.servicebus_topic}",
            run=secrets.token_hex(4),
            started=int(time.time()),
            source=str(source),
            ids=asked.ids,
            shard=asked.shard,
            cursor=asked.cursor,
        )
        state = _state(identity, arguments.state, dry_run=arguments.dry_run)
        if state.finished:
            return finished_before(state)
        sender = None
        if not arguments.dry_run:
            sender = await stack.enter_async_context(ordered_sender(settings, with_original_id=arguments.as_new))
        parked = None if arguments.force else await _parked(settings, source)
        reading = await opened.reading(state.identity, force=arguments.force)
        counts = await Replay(reading, sender, parked, state, terminal).run()
        if sender is None:
            return dry_result(state, counts)
        return result_of(state, counts, sender)


@dataclass(frozen=True, slots=True)
class _Cosmos:
    outbox: Outbox

    async def identity(self) -> str:
        return await self.outbox.resource_id()

    async def reading(self, identity: ReplayIdentity, *, force: bool) -> Reading:
        chosen = Range(
            identity.event_type, identity.since, _until(identity), identity.partition_key, identity.action
        )
        return CosmosReading(self.outbox, chosen, None if force else await self.outbox.positions())


@dataclass(frozen=True, slots=True)
class _Sql:
    session: AsyncSession
    feed: SqlFeed

    async def identity(self) -> str:
        return await feed_identity(self.session, self.feed)

    async def reading(self, identity: ReplayIdentity, *, force: bool) -> Reading:
        chosen = SqlRange(
            identity.event_type,
            identity.since,
            _until(identity),
            identity.partition_key,
            identity.action,
            frozenset(identity.ids),
            identity.shard,
            None if identity.cursor is None else from_text(identity.cursor),
        )
        return SqlReading(self.session, self.feed, chosen, await read_cursors(self.session, self.feed))


@asynccontextmanager
async def _open(settings: Settings, source: SourceKind) -> AsyncIterator[_Cosmos | _Sql]:
    if source is SourceKind.SQL:
        feed = sql_feed(settings)
        async with open_session(feed) as session:
            yield _Sql(session, feed)
    else:
        async with open_outbox(settings) as outbox:
            yield _Cosmos(outbox)


def _until(identity: ReplayIdentity) -> int:
    # The app publishes what is committed after the start of the replay, even if --to is in the future.
    return min(identity.until, identity.started + 1)


async def _parked(settings: Settings, source: SourceKind) -> Set[str]:
    async with open_records(settings, source) as records:
        return (await records.holdings.parked()).keys()


def _state(identity: ReplayIdentity, file: Path | None, *, dry_run: bool) -> ReplayState:
    if dry_run and file is not None and not file.exists():
        return ReplayState.begin(identity, None)
    return ReplayState.begin(identity, file)


def _namespace(connection: Connection) -> str:
    if connection.connection_string is None:
        return connection.address or ""
    endpoint = ConnectionString(connection.connection_string).get("Endpoint")
    return urlsplit(endpoint or "").netloc
