"""`python -m relay replay`: publishes events again that are still in the outbox."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Mapping, Set
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from relay import assembly
from relay.cli.arguments import Commands, with_one_outbox
from relay.cli.records import open_records
from relay.cli.replay_options import EXAMPLES, add_arguments, choice_of
from relay.cli.replay_report import dry_result, finished_before, result_of
from relay.cli.replay_run import Replay
from relay.cli.replay_state import ReplayIdentity, ReplayState
from relay.cli.sender import ordered_sender
from relay.cli.terminal import Result, Terminal
from relay.clients import Connection, ConnectionString
from relay.outbox import Range
from relay.settings import Settings


def add_to(commands: Commands) -> None:
    """Add the command and its options."""
    add_arguments(commands.add("replay", "publish events of the outbox again", EXAMPLES, run, one_outbox=True))


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Publish the events again, or count what a replay would publish.

    Raises:
        UsageError: The options contradict each other, or the state file belongs to another replay.
        ServiceError: The outbox cannot be read, or the state file cannot be written.
    """
    settings = with_one_outbox(Settings.from_environment(environment), arguments.source)
    asked = choice_of(arguments, settings)
    async with AsyncExitStack() as stack:
        outbox = assembly.open_outbox(settings)
        stack.push_async_callback(outbox.close)
        identity = ReplayIdentity(
            since=asked.since,
            until=asked.until,
            partition_key=arguments.partition_key,
            action=arguments.action,
            as_new=arguments.as_new,
            event_type=settings.event_type,
            container=await outbox.identity(),
            topic=f"{_namespace(settings.servicebus)}/{settings.servicebus_topic}",
            run=secrets.token_hex(4),
            started=int(time.time()),
            source="cosmos" if settings.sql is None else "sql",
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
        parked = None if arguments.force else await _parked(settings)
        reading = await outbox.in_range(_range(state.identity))
        counts = await Replay(outbox, reading, sender, parked, state, terminal).run()
        if sender is None:
            return dry_result(state, counts)
        return result_of(state, counts, sender)


def _range(identity: ReplayIdentity) -> Range:
    # The app publishes what is committed after the start of the replay, even if --to is in the future.
    until = min(identity.until, identity.started + 1)
    return Range(
        identity.since,
        until,
        identity.partition_key,
        identity.action,
        frozenset(identity.ids),
        identity.shard,
        identity.cursor,
    )


async def _parked(settings: Settings) -> Set[str]:
    async with open_records(settings) as records:
        return (await records.parked()).keys()


def _state(identity: ReplayIdentity, file: Path | None, *, dry_run: bool) -> ReplayState:
    if dry_run and file is not None and not file.exists():
        return ReplayState.begin(identity, None)
    return ReplayState.begin(identity, file)


def _namespace(connection: Connection) -> str:
    if connection.connection_string is None:
        return connection.address or ""
    endpoint = ConnectionString(connection.connection_string).get("Endpoint")
    return urlsplit(endpoint or "").netloc
