"""`python -m relay replay`: publishes events again that are still in the outbox."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import time
from collections.abc import Iterable, Set
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from math import ceil, floor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relay.cli.committed import Outbox, Range, open_outbox
from relay.cli.console import Console
from relay.cli.ordered import OrderedSender, ordered_sender
from relay.cli.quarantine.records import open_records
from relay.cli.replay.report import ReplayCounts, dry_result, finished_before, result_of
from relay.cli.replay.state import Invalid, ReplayIdentity, ReplayState
from relay.cli.results import Result
from relay.cli.times import format_time, parse_time
from relay.connection_strings import ConnectionString
from relay.cosmos.documents import event_of
from relay.cosmos.leases import Positions
from relay.errors import UsageError
from relay.events import MAX_KEY_LENGTH, Document, Event, Rejected
from relay.settings import Connection, Settings

_DIGEST_CHARACTERS = 16

EXAMPLES = """\
examples:
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --dry-run
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --state incident-42.state
  python -m relay replay --from 1770634800 --to 1770638400 --action ContactNameUpdatedEvent --as-new

Publishes the events that are still in the outbox and were committed at --from or later and before --to, in commit
order within each partition key. Events whose ttl has passed are gone.

Without --as-new, events keep their ids. The topic drops those that it received within its duplicate detection
window, so a replay within the window fills gaps only; events from before the window are delivered again. An
event that fills a gap arrives after the later events of its partition key.

With --as-new, each event gets the id <id>:replay:<run> (at most 128 characters) and keeps its own id in the
application property originalId. Every subscription of the topic receives all of them again. Consumers that
recognise duplicates by message id treat them as new; consumers that compare originalId do not.

Events that the relay has not passed yet, according to its leases, are left to it: published now, they would
overtake the events before them. Events of parked partition keys are left too, as records of them are in
quarantine. --force publishes both.

With --state, progress is stored in a file after each accepted chunk. Run the same command again to continue
after an interruption. It keeps the run, so an event that was accepted but not noted is dropped as a
duplicate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `replay`."""
    when = "ISO 8601, UTC unless it has an offset, or seconds since 1970"
    parser.add_argument("--from", dest="since", type=_time, required=True, metavar="T", help=f"{when}; inclusive")
    parser.add_argument("--to", dest="until", type=_time, required=True, metavar="T", help=f"{when}; exclusive")
    parser.add_argument("--partition-key", metavar="KEY", help="only events of this partition key")
    parser.add_argument("--action", metavar="ACTION", help="only events with this data.action")
    parser.add_argument(
        "--dry-run", action="store_true", help="count the events by key and action, and send nothing"
    )
    parser.add_argument(
        "--as-new", action="store_true", help="publish with new ids, so that consumers receive the events again"
    )
    parser.add_argument(
        "--force", action="store_true", help="also publish events that are left to the relay or to a release"
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="store progress here, and resume from it")


def _time(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def run(arguments: argparse.Namespace, settings: Settings, console: Console) -> Result:
    """Publish the events again, or count what a replay would publish.

    Raises:
        UsageError: The range is empty or reversed, or the state file belongs to another replay.
        ServiceError: The outbox cannot be read, or the state file cannot be written.
    """
    since, until = floor(arguments.since), ceil(arguments.until)
    if since >= until:
        raise UsageError(
            f"the range from {format_time(since)} to {format_time(until)} is empty: --from must be before --to"
        )
    async with AsyncExitStack() as stack:
        outbox = await stack.enter_async_context(open_outbox(settings))
        identity = ReplayIdentity(
            since=since,
            until=until,
            partition_key=arguments.partition_key,
            action=arguments.action,
            as_new=arguments.as_new,
            event_type=settings.event_type,
            container=await outbox.resource_id(),
            topic=f"{_namespace(settings.servicebus)}/{settings.servicebus_topic}",
            run=secrets.token_hex(4),
            started=int(time.time()),
        )
        state = _state(identity, arguments.state, dry_run=arguments.dry_run)
        if state.finished:
            return finished_before(state)
        sender = None
        if not arguments.dry_run:
            sender = await stack.enter_async_context(ordered_sender(settings, with_original_id=arguments.as_new))
        limits = None if arguments.force else await _limits(outbox, settings)
        replay = _Replay(outbox, sender, limits, state, console)
        counts = await replay.run()
        if sender is None:
            return dry_result(state, counts)
        return result_of(state, counts, sender)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a replay must not publish: events beyond the relay's positions, and events of parked keys."""

    positions: Positions
    parked: Set[str]


async def _limits(outbox: Outbox, settings: Settings) -> _Limits:
    async with open_records(settings) as records:
        return _Limits(await outbox.positions(), (await records.holdings.parked()).keys())


def _state(identity: ReplayIdentity, file: Path | None, *, dry_run: bool) -> ReplayState:
    if dry_run and file is not None and not file.exists():
        return ReplayState.begin(identity, None)
    return ReplayState.begin(identity, file)


def _namespace(connection: Connection) -> str:
    if connection.connection_string is None:
        return connection.address or ""
    endpoint = ConnectionString(connection.connection_string).get("Endpoint")
    return urlsplit(endpoint or "").netloc


class _Replay:
    """One run of a replay: a dry run without a sender; without limits it may overtake the relay."""

    def __init__(
        self,
        outbox: Outbox,
        sender: OrderedSender | None,
        limits: _Limits | None,
        state: ReplayState,
        console: Console,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._limits = limits
        self._state = state
        self._console = console
        self._counts = ReplayCounts()
        identity = state.identity
        # The app publishes what is committed after the start of the replay, even if --to is in the future.
        self._range = Range(
            identity.event_type,
            identity.since,
            min(identity.until, identity.started + 1),
            identity.partition_key,
            identity.action,
        )

    async def run(self) -> ReplayCounts:
        feed_ranges = await self._outbox.feed_ranges(self._range)
        counts = [await self._outbox.count(self._range, feed_range) for feed_range in feed_ranges]
        progress = self._console.progress("events read" if self._sender is None else "events done", sum(counts))
        for feed_range, count in zip(feed_ranges, counts, strict=True):
            found = self._counts.matched
            async with aclosing(self._outbox.pages(self._range, feed_range, count)) as pages:
                async for documents in pages:
                    await self._take(documents)
                    progress.update(self._counts.matched)
                    if self._sender is not None and self._sender.gave_up:
                        return self._counts
            await self._compare(feed_range, count, self._counts.matched - found)
        progress.finish(self._counts.matched)
        left_over = self._counts.unread or self._counts.left
        if self._sender is not None and not (self._sender.failures or left_over):
            self._state.finish()
        return self._counts

    async def _compare(self, feed_range: dict[str, Any], count: int, found: int) -> None:
        """Documents may expire after they were counted; those that still exist should have been read."""
        if found < count:
            still_there = await self._outbox.count(self._range, feed_range)
            self._counts.unread += max(0, min(count, still_there) - found)

    async def _take(self, documents: list[Document]) -> None:
        self._counts.matched += len(documents)
        waiting = [document for document in documents if not self._state.covers(document)]
        self._counts.skipped += len(documents) - len(waiting)
        events, invalid = _validated([document for document in waiting if not await self._is_left(document)])
        self._counts.keys.update(event.partition_key for event in events)
        self._counts.actions.update(event.action for event in events)
        if self._sender is None:
            self._state.invalid |= {(each.partition_key, each.id): each for each in invalid}
            return
        if self._state.identity.as_new:
            events = [replace(event, id=new_id(event.id, self._state.identity.run)) for event in events]
        sent = await self._sender.send(events)
        invalid += map(_invalid, sent.rejected)
        dealt_with = {key: [event.document for event in through] for key, through in sent.through.items()}
        self._state.advance(dealt_with, len(sent.accepted), invalid)

    async def _is_left(self, document: Document) -> bool:
        """Whether a document is left to the relay, which has not or may not have passed it, or to a release."""
        if self._limits is None:
            return False
        key, lsn = document.get("partitionKey"), document.get("_lsn")
        if key in self._limits.parked:
            self._counts.parked[str(key)] += 1
            return True
        if isinstance(key, str) and isinstance(lsn, int) and await self._limits.positions.passed(key, lsn):
            return False
        self._counts.ahead[str(key)] += 1
        return True


def _validated(documents: Iterable[Document]) -> tuple[list[Event], list[Invalid]]:
    events: list[Event] = []
    invalid: list[Invalid] = []
    for document in documents:
        event = event_of(document)
        if isinstance(event, Event):
            events.append(event)
        else:
            invalid.append(_invalid(event))
    return events, invalid


def _invalid(rejected: Rejected) -> Invalid:
    key = str(rejected.document.get("partitionKey"))
    return Invalid(rejected.id, key, str(rejected.reason), rejected.detail)


def new_id(identifier: str, run: str) -> str:
    """The message id under which a run of a replay publishes an event as new; at most 128 characters.

    A longer id is cut, and a digest of it distinguishes it from others with the same beginning.
    """
    suffix = f":replay:{run}"
    # Service Bus counts UTF-16 code units, so a character beyond the basic plane counts twice.
    room = MAX_KEY_LENGTH - len(suffix)
    units = identifier.encode("utf-16-le", errors="surrogatepass")
    if len(units) > 2 * room:
        digest = hashlib.sha256(units).hexdigest()[:_DIGEST_CHARACTERS]
        kept = units[: 2 * (room - len(digest) - 1)].decode("utf-16-le", errors="ignore")
        identifier = f"{kept}~{digest}"
    return identifier + suffix
