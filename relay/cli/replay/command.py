"""`python -m relay replay`: publish again what is still in the outbox."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Set
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from math import ceil, floor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relay.cli.committed import Outbox, Range, open_outbox
from relay.cli.console import Console
from relay.cli.ordered import OrderedSender, ordered_sender
from relay.cli.quarantine.records import open_records
from relay.cli.replay.state import Invalid, ReplayIdentity, ReplayState
from relay.cli.results import ExitCode, Result
from relay.cli.times import format_time, parse_time
from relay.connection_strings import ConnectionString
from relay.cosmos.leases import Positions
from relay.errors import UsageError
from relay.events import MAX_KEY_LENGTH, Document, DomainEvent, InvalidEvent
from relay.settings import Connection, Settings

_KEYS_LISTED = 50
_DIGEST_CHARACTERS = 16

EXAMPLES = """\
examples:
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --dry-run
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --state incident-42.state
  python -m relay replay --from 1770634800 --to 1770638400 --action ContactNameUpdatedEvent --as-new

Reads the events that are still in the outbox and were committed at --from or later, and before --to, and publishes
them in commit order within each partition key. Events whose ttl has passed are gone.

Without --as-new they keep their ids. The topic drops those that it has had within its duplicate detection
window, so only gaps are filled; those that it had before that arrive once more. A gap that is filled
arrives after the later events of its partition key.

With --as-new each gets the id <id>:replay:<run> (at most 128 characters), and its own in the application property
originalId. All of them arrive again at every subscription of the topic: consumers that know events by their id
take them for new, those that look at originalId do not.

Events that the relay has not passed yet are left to it: publishing them now would overtake what it still has to
publish. How far it has come stands in the lease container. So are the events of parked partition keys, of which
records are in quarantine. --force publishes them all the same.

With --state, progress is kept in a file, after each chunk that was accepted. Run the same command again to go on
after an interruption: it keeps the run, so what was accepted but not noted is dropped as a duplicate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `replay`."""
    when = "ISO 8601, UTC unless it has an offset, or seconds since 1970"
    parser.add_argument("--from", dest="since", type=_time, required=True, metavar="T", help=f"{when}; inclusive")
    parser.add_argument("--to", dest="until", type=_time, required=True, metavar="T", help=f"{when}; exclusive")
    parser.add_argument("--partition-key", metavar="KEY", help="only of this partition key")
    parser.add_argument("--action", metavar="ACTION", help="only with this data.action")
    parser.add_argument("--dry-run", action="store_true", help="count and list by key and action, send nothing")
    parser.add_argument("--as-new", action="store_true", help="with ids that make them new")
    parser.add_argument(
        "--force", action="store_true", help="publish what the relay has not passed yet too: it overtakes the rest"
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="keep progress here, and go on from there")


def _time(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(slots=True)
class Tally:
    """What one run has seen.

    Attributes:
        matched: Events of the range read in this run.
        skipped: Those among them that an earlier run had dealt with.
        unread: Events of the range that a query counts, but the change feed did not bring.
        ahead: Events that the relay has not passed yet, by partition key: left to it.
        parked: Events of parked partition keys, by key: left to their release.
        keys: Those to publish, by partition key.
        actions: Those to publish, by action.
    """

    matched: int = 0
    skipped: int = 0
    unread: int = 0
    ahead: Counter[str] = field(default_factory=Counter)
    parked: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        """Events of the range that this run did not touch, as it would have overtaken others."""
        return self.ahead.total() + self.parked.total()


async def run(arguments: argparse.Namespace, settings: Settings, console: Console) -> Result:
    """Replay, or count what a replay would send.

    Raises:
        UsageError: The range is empty or reversed, or the state file belongs to another replay.
        ServiceError: The outbox cannot be read, or the state file cannot be written.
    """
    since, until = floor(arguments.since), ceil(arguments.until)
    if since >= until:
        raise UsageError(
            f"the range from {format_time(since)} to {format_time(until)} is empty: --from must lie before --to"
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
            return _finished_before(state)
        sender = None
        if not arguments.dry_run:
            sender = await stack.enter_async_context(ordered_sender(settings, with_original_id=arguments.as_new))
        limits = None if arguments.force else await _limits(outbox, settings)
        replay = _Replay(outbox, sender, limits, state, console)
        tally = await replay.run()
        if sender is None:
            return _dry_result(state, tally)
        return _result(state, tally, sender)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a replay must not publish: how far the relay has come, and the partition keys that are parked."""

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
    """One run of a replay; without a sender, a dry one; without limits, one that may overtake."""

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
        self._tally = Tally()
        identity = state.identity
        # What is committed after the replay was begun is the app's to publish, even where --to lies ahead.
        self._range = Range(
            identity.event_type,
            identity.since,
            min(identity.until, identity.started + 1),
            identity.partition_key,
            identity.action,
        )

    async def run(self) -> Tally:
        feed_ranges = await self._outbox.feed_ranges(self._range)
        counts = [await self._outbox.count(self._range, feed_range) for feed_range in feed_ranges]
        progress = self._console.progress("events read" if self._sender is None else "events done", sum(counts))
        for feed_range, count in zip(feed_ranges, counts, strict=True):
            found = self._tally.matched
            async with aclosing(self._outbox.pages(self._range, feed_range, count)) as pages:
                async for documents in pages:
                    await self._take(documents)
                    progress.update(self._tally.matched)
                    if self._sender is not None and self._sender.gave_up:
                        return self._tally
            await self._compare(feed_range, count, self._tally.matched - found)
        progress.finish(self._tally.matched)
        tally = self._tally
        if self._sender is not None and not (self._sender.failures or tally.unread or tally.left):
            self._state.finish()
        return tally

    async def _compare(self, feed_range: dict[str, Any], count: int, found: int) -> None:
        """Fewer than were counted is what expires while it is read; what is still there should have been read."""
        if found < count:
            still_there = await self._outbox.count(self._range, feed_range)
            self._tally.unread += max(0, min(count, still_there) - found)

    async def _take(self, documents: list[Document]) -> None:
        self._tally.matched += len(documents)
        waiting = [document for document in documents if not self._state.covers(document)]
        self._tally.skipped += len(documents) - len(waiting)
        events, invalid = _validated([document for document in waiting if not await self._is_left(document)])
        self._tally.keys.update(event.partition_key for event in events)
        self._tally.actions.update(event.action for event in events)
        if self._sender is None:
            self._state.invalid |= {(each.partition_key, each.id): each for each in invalid}
            return
        if self._state.identity.as_new:
            events = [replace(event, id=new_id(event.id, self._state.identity.run)) for event in events]
        sent = await self._sender.send(events)
        invalid += [
            Invalid(
                rejected.event.document["id"],
                rejected.event.partition_key,
                str(rejected.reason),
                rejected.detail,
            )
            for rejected in sent.rejected
        ]
        dealt_with = {key: [event.document for event in through] for key, through in sent.through.items()}
        self._state.advance(dealt_with, len(sent.accepted), invalid)

    async def _is_left(self, document: Document) -> bool:
        """Whether a document is still the relay's to publish, or may be, or an operator's to release."""
        if self._limits is None:
            return False
        key, lsn = document.get("partitionKey"), document.get("_lsn")
        if key in self._limits.parked:
            self._tally.parked[str(key)] += 1
            return True
        if isinstance(key, str) and isinstance(lsn, int) and await self._limits.positions.passed(key, lsn):
            return False
        self._tally.ahead[str(key)] += 1
        return True


def _validated(documents: Iterable[Document]) -> tuple[list[DomainEvent], list[Invalid]]:
    events: list[DomainEvent] = []
    invalid: list[Invalid] = []
    for document in documents:
        try:
            events.append(DomainEvent.from_document(document))
        except InvalidEvent as error:
            key = str(document.get("partitionKey"))
            invalid.append(Invalid(document["id"], key, str(error.reason), error.detail))
    return events, invalid


def new_id(identifier: str, run: str) -> str:
    """The message id under which a run of a replay sends an event as new; 128 characters at most.

    An id too long for that is cut, and a digest of it keeps it apart from others that begin alike.
    """
    suffix = f":replay:{run}"
    # Service Bus counts UTF-16 units, and so a character beyond the basic plane twice.
    room = MAX_KEY_LENGTH - len(suffix)
    units = identifier.encode("utf-16-le", errors="surrogatepass")
    if len(units) > 2 * room:
        digest = hashlib.sha256(units).hexdigest()[:_DIGEST_CHARACTERS]
        kept = units[: 2 * (room - len(digest) - 1)].decode("utf-16-le", errors="ignore")
        identifier = f"{kept}~{digest}"
    return identifier + suffix


def _common_data(state: ReplayState, tally: Tally) -> dict[str, Any]:
    identity = state.identity
    return {
        "from": format_time(identity.since),
        "to": format_time(identity.until),
        "asNew": identity.as_new,
        "run": identity.run,
        "matched": tally.matched,
        "skipped": tally.skipped,
        "unread": tally.unread,
        "ahead": dict(tally.ahead),
        "parked": dict(tally.parked),
        "invalid": [each.data() for each in state.invalid.values()],
    }


def _finished_before(state: ReplayState) -> Result:
    data = {
        **_common_data(state, Tally()),
        "dryRun": False,
        "published": state.published,
        "failures": [],
        "stopped": False,
    }
    lines = [f"This replay was finished before: {state.published} event(s) published, nothing left to do."]
    return Result(ExitCode.FINDINGS if state.invalid else ExitCode.OK, data, lines + _invalid_lines(state))


def _dry_result(state: ReplayState, tally: Tally) -> Result:
    lines = [
        f"{tally.keys.total()} event(s) of {len(tally.keys)} partition key(s) would be published; "
        "nothing was sent.",
        *(f"  {count:>8}  action {action!r}" for action, count in tally.actions.most_common()),
        *(f"  {count:>8}  partition key {key!r}" for key, count in tally.keys.most_common(_KEYS_LISTED)),
    ]
    if len(tally.keys) > _KEYS_LISTED:
        lines.append(f"  and {len(tally.keys) - _KEYS_LISTED} more partition keys: --json lists all")
    data = {
        **_common_data(state, tally),
        "dryRun": True,
        "actions": dict(tally.actions.most_common()),
        "partitionKeys": dict(tally.keys.most_common()),
    }
    return Result(_code(state, tally, ExitCode.OK), data, lines + _remarks(state, tally) + _invalid_lines(state))


def _result(state: ReplayState, tally: Tally, sender: OrderedSender) -> Result:
    unsent = sum(failure.unsent for failure in sender.failures.values())
    run = f" as new, run {state.identity.run}" if state.identity.as_new else ""
    lines = [f"{state.published} event(s) published{run}, {len(state.invalid)} invalid, {unsent} not sent"]
    if sender.failures:
        lines += ["These partition keys did not get through:", *sender.failure_lines()]
    if sender.gave_up:
        lines.append("Nothing gets through any more: stopped before the end of the range.")
    if sender.failures or sender.gave_up:
        again = "the same command goes on from here" if state.file else "without --state it starts over"
        lines.append(f"Run it again when that is put right: {again}.")
    data = {
        **_common_data(state, tally),
        "dryRun": False,
        "published": state.published,
        "failures": sender.failures_data(),
        "stopped": sender.gave_up,
    }
    code = _code(state, tally, sender.exit_code)
    return Result(code, data, lines + _remarks(state, tally) + _invalid_lines(state))


def _code(state: ReplayState, tally: Tally, code: ExitCode) -> ExitCode:
    return ExitCode.FINDINGS if code is ExitCode.OK and (state.invalid or tally.unread or tally.left) else code


def _remarks(state: ReplayState, tally: Tally) -> list[str]:
    lines = []
    if tally.skipped:
        lines.append(f"{tally.skipped} event(s) were dealt with by an earlier run.")
    if tally.ahead:
        lines.append(
            f"{tally.ahead.total()} event(s) of {len(tally.ahead)} partition key(s) were left to the relay, which "
            "has not passed them yet by its leases: published now, they would overtake those before them. Run it "
            "again when the relay has caught up. Where no relay runs on this lease container, or you want it all "
            "the same, add --force."
        )
    if tally.parked:
        lines.append(
            f"{tally.parked.total()} event(s) of {len(tally.parked)} parked partition key(s) were left: release "
            "their records first (python -m relay quarantine list). --force publishes them ahead of those records."
        )
    if tally.unread:
        lines.append(f"{tally.unread} event(s) of the range were not read: run it again.")
    if state.identity.until > state.identity.started:
        lines.append("The range ends in the future: what is committed after the replay began is not part of it.")
    return lines


def _invalid_lines(state: ReplayState) -> list[str]:
    return [
        f"  invalid: document {each.id!r} of {each.partition_key!r}: {each.reason}: {each.detail}"
        for each in state.invalid.values()
    ]
