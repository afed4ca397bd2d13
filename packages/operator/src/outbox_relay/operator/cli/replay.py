"""`python -m relay replay`: publishes events again that are still in the outbox."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil, floor
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from outbox_relay.command_line import value, whole_number
from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli.options import Ids, Key, OneOutbox, Session, command_app
from outbox_relay.operator.cli.quarantine_admin import Discarded, open_records
from outbox_relay.operator.cli.replay_run import Replay, ReplayCounts, ReplayIdentity, ReplayState
from outbox_relay.operator.cli.sender import OrderedSender, Rehearsal, ordered_sender, rehearsal
from outbox_relay.operator.cli.terminal import ExitCode, Result
from outbox_relay.operator.outcomes import Removed
from relay.backends.outbox import Outbox, Range
from relay.config.clients import Connection, ConnectionString
from relay.core.errors import UsageError
from relay.core.place import ulid_time
from relay.core.remedy import LIST, Sentence
from relay.core.times import format_time, parse_moment

# The last second of the year 9999: with --from-cursor, --to need not be given.
_FOREVER = 253_402_300_799

_KEYS_LISTED = 50

EXAMPLES = """\
examples:
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --dry-run
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --state incident-42.state
  python -m relay replay --from 2h --to 10m --dry-run
  python -m relay replay --from 1770634800 --to 1770638400 --action ContactNameUpdatedEvent --as-new
  python -m relay replay --source sql --from-cursor 01KH0QWAJVHHVPN1AHM27M3NXG --id 7c1f --id 90aa   (SQL)

Publishes the events that are still in the outbox and were committed at --from or later and before --to, in commit
order within each partition key. Events whose ttl has passed are gone. --from 1h is an hour before now; --state
needs both times, as the same command must then choose the same range.

Without --as-new, events keep their ids. The topic drops those that it received within its duplicate detection
window, so a replay within the window fills gaps only; events from before the window are delivered again. An
event that fills a gap arrives after the later events of its partition key.

With --as-new, each event gets the id <id>:replay:<run> (at most 128 characters) and keeps its own id in the
application property originalId. Every subscription of the topic receives all of them again. Consumers that
recognise duplicates by message id treat them as new; consumers that compare originalId do not.

Events that the relay has not passed yet, according to its leases or cursors, are left to it: published now, they
would overtake the events before them. Events of parked partition keys are left too, as records of them are in
quarantine, and those that an operator has discarded. --force publishes them all.

From an SQL outbox, the time of an event is that of its position in the feed, and the feed keeps every event whose
row still exists. --from-cursor begins behind a position; --shard narrows the range. Events whose row is
gone are reported.

Nothing is deleted, so the command asks for no confirmation: --dry-run shows what it would publish, and what is too
large for the topic. What the topic refuses for another reason shows only when it is sent.

With --state, progress is stored in a file after each accepted chunk. Run the same command again to continue
after an interruption. It keeps the run, so an event that was accepted but not noted is dropped as a
duplicate."""


app = command_app("replay", EXAMPLES)

_WHEN = "ISO 8601, UTC unless it has an offset; seconds since 1970; or how long ago, as 1h30m"
_UNTIL = "written like --from (default: now)"

Moment = float | timedelta | None
"""Seconds since 1970, or how long ago."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options that choose events.

    Attributes:
        from_cursor: SQL: instead of --from, the position behind which to begin; needs no --to
        shard: SQL: only events of this shard
        id: only events with this id; may be repeated
        partition_key: only events of this partition key
        action: only events with this data.action
    """

    since: Annotated[Moment, value(parse_moment, name="--from", metavar="T", help=f"the beginning: {_WHEN}")] = (
        None
    )
    until: Annotated[
        Moment, value(parse_moment, name="--to", metavar="T", help=f"the end, exclusive: {_UNTIL}")
    ] = None
    from_cursor: Annotated[str | None, Parameter(metavar="ULID")] = None
    shard: Annotated[int | None, value(whole_number, metavar="N")] = None
    id: Ids = ()
    partition_key: Key = None
    action: Annotated[str | None, Parameter(metavar="ACTION")] = None


@app.default
async def replay(
    *,
    selection: Selection = Selection(),
    dry_run: bool = False,
    as_new: bool = False,
    force: bool = False,
    state_file: Annotated[Path | None, Parameter(name="--state", metavar="FILE")] = None,
    options: OneOutbox = OneOutbox(),
    session: Session,
) -> Result:
    """Publish events of the outbox again, or count what a replay would publish.

    Args:
        dry_run: count the events by key and action, and send nothing
        as_new: publish with new ids, so that consumers receive the events again
        force: also publish events that are left to the relay or to a release, or that were discarded
        state_file: store progress here, and resume from it
    """
    backend = options.backend(session.environment)
    settings = backend.settings
    chosen = _range(selection, backend, resumable=state_file is not None)
    async with AsyncExitStack() as stack:
        outbox = backend.open_outbox()
        stack.push_async_callback(outbox.close)
        identity = await _identity(chosen, backend, outbox, as_new=as_new)
        # A dry run reads a state file, and makes none.
        no_file = dry_run and state_file is not None and not state_file.exists()
        state = ReplayState.begin(identity, None if no_file else state_file)
        if state.finished:
            return _result(state, ReplayCounts(), None, backend, dry_run=False)
        sender: OrderedSender | Rehearsal
        if dry_run:
            sender = await stack.enter_async_context(rehearsal(settings, with_original_id=as_new))
        else:
            sender = await stack.enter_async_context(ordered_sender(settings, with_original_id=as_new))
        parked: Set[str] | None = None
        discarded: Mapping[Discarded, Removed] = {}
        if not force:
            records = await stack.enter_async_context(open_records(backend))
            parked = (await records.parked()).keys()
            discarded = await records.discarded()
        # The app publishes events committed after the start of the replay, even if --to is in the future.
        until = min(state.identity.chosen.until, state.identity.started + 1)
        reading = await outbox.in_range(replace(state.identity.chosen, until=until))
        work = Replay(outbox, reading, sender, parked, discarded, state)
        await work.run(session.terminal)
        sent_by = sender if isinstance(sender, OrderedSender) else None
        return _result(state, work.counts, sent_by, backend, dry_run=dry_run)


def _range(selection: Selection, backend: OperatorBackend, *, resumable: bool) -> Range:
    """Return the range that the options choose, for one outbox.

    Raises:
        UsageError: They contradict each other, or the range is empty or reversed.
    """
    since, until = _resolved(selection, time.time(), resumable=resumable)
    if backend.shards is None and (selection.from_cursor or selection.shard is not None):
        raise UsageError("--from-cursor and --shard are for an SQL outbox")
    cursor = None
    if selection.from_cursor is not None:
        since, until = _behind_cursor(selection, selection.from_cursor, until, backend)
        cursor = selection.from_cursor.upper()
    elif since is None or until is None:
        raise UsageError("give --from" + (", or --from-cursor" if backend.shards is not None else ""))
    since, until = floor(since), ceil(until)
    if since >= until:
        raise UsageError(
            f"the range from {format_time(since)} to {format_time(until)} is empty: --from must be before --to"
        )
    ids = sorted(selection.id)
    return Range(since, until, selection.partition_key, selection.action, ids, selection.shard, cursor)


def _resolved(selection: Selection, now: float, *, resumable: bool) -> tuple[float | None, float | None]:
    """Return `--from` and `--to` in seconds since 1970, also if they are how long ago; None if not given."""
    since, until = (
        now - each.total_seconds() if isinstance(each, timedelta) else each
        for each in (selection.since, selection.until)
    )
    if since is not None and until is None:
        # Events that were committed in this second are in the range: the outbox may store whole seconds.
        until = floor(now) + 1
    ends = (("--from", since, selection.since), ("--to", until, selection.until))
    # The same command would ask for another range when it resumes.
    moving = [f"{name} {format_time(floor(end))}" for name, end, given in ends if end is not None and end != given]
    if resumable and moving:
        raise UsageError(f"--state: a replay that can be resumed has a fixed range: write {' '.join(moving)}")
    return since, until


def _behind_cursor(
    selection: Selection, cursor: str, until: float | None, backend: OperatorBackend
) -> tuple[int, float]:
    """Return the time of `--from-cursor`, and the end of the range."""
    if selection.since is not None:
        raise UsageError("give either --from or --from-cursor")
    if selection.shard is None and backend.shards is not None and backend.shards > 1:
        raise UsageError("--from-cursor: a position is of one shard: add --shard")
    try:
        since = ulid_time(cursor)
    except ValueError as error:
        raise UsageError(f"--from-cursor: {error}") from error
    if until is not None and since >= ceil(until):
        raise UsageError(f"the range is empty: the position is of {format_time(since)}, which is not before --to")
    return since, _FOREVER if until is None else until


async def _identity(chosen: Range, backend: OperatorBackend, outbox: Outbox, *, as_new: bool) -> ReplayIdentity:
    settings = backend.settings
    return ReplayIdentity(
        chosen,
        as_new=as_new,
        event_type=settings.policy.event_type,
        container=await outbox.identity(),
        topic=f"{_namespace(settings.servicebus.connection)}/{settings.servicebus.entity}",
        run=secrets.token_hex(4),
        started=int(time.time()),
        source=backend.name,
    )


def _namespace(connection: Connection) -> str:
    if connection.connection_string is None:
        return connection.address or ""
    endpoint = ConnectionString(connection.connection_string).get("Endpoint")
    return urlsplit(endpoint or "").netloc


def _result(
    state: ReplayState,
    counts: ReplayCounts,
    sender: OrderedSender | None,
    backend: OperatorBackend,
    *,
    dry_run: bool,
) -> Result:
    """Return the result of a run; one without a sender is a dry run, or an earlier run has finished the replay."""
    chosen = state.identity.chosen
    data: dict[str, Any] = {
        "from": format_time(chosen.since),
        "to": format_time(chosen.until),
        "asNew": state.identity.as_new,
        "run": state.identity.run,
        "matched": counts.matched,
        "skipped": counts.skipped,
        "unread": counts.unread,
        "ahead": dict(counts.ahead),
        "parked": dict(counts.parked),
        "discarded": [_discard_data(each) for each in counts.discarded],
        "invalid": [each.data() for each in state.invalid.values()],
        "dryRun": dry_run,
    }
    if dry_run:
        data["actions"] = dict(counts.actions.most_common())
        data["partitionKeys"] = dict(counts.keys.most_common())
        lines = _dry_lines(counts)
    else:
        data["published"] = state.published
        data["failures"] = [] if sender is None else sender.failures_data()
        data["stopped"] = sender is not None and sender.gave_up
        lines = _published_lines(state, sender)
    if dry_run or sender is not None:
        lines += _remarks(state, counts, backend)
    lines += [
        f"  invalid: document {each.id!r} of {each.partition_key!r}: {each.reason}: {each.detail}"
        for each in state.invalid.values()
    ]
    lines += [
        f"  discarded: document {each.document_id!r} of {each.partition_key!r}: by {each.by} at {each.at}"
        + (f": {each.why}" if each.why else "")
        for each in counts.discarded
    ]
    code = ExitCode.OK if sender is None else sender.exit_code
    if code is ExitCode.OK and (state.invalid or counts.unread or counts.left):
        code = ExitCode.FINDINGS
    return Result(code, data, lines)


def _discard_data(removed: Removed) -> dict[str, Any]:
    return {
        "id": removed.document_id,
        "partitionKey": removed.partition_key,
        "by": removed.by,
        "at": removed.at,
        "why": removed.why,
    }


def _dry_lines(counts: ReplayCounts) -> list[str]:
    lines = [
        f"{counts.keys.total()} event(s) of {len(counts.keys)} partition key(s) would be published; "
        "nothing was sent.",
        *(f"  {count:>8}  action {action!r}" for action, count in counts.actions.most_common()),
        *(f"  {count:>8}  partition key {key!r}" for key, count in counts.keys.most_common(_KEYS_LISTED)),
    ]
    if len(counts.keys) > _KEYS_LISTED:
        lines.append(f"  and {len(counts.keys) - _KEYS_LISTED} more partition keys; --json lists all")
    return lines


def _published_lines(state: ReplayState, sender: OrderedSender | None) -> list[str]:
    published = f"{state.published} event(s) published"
    if sender is None:
        return [f"An earlier run has finished this replay: {published}, nothing left to do."]
    unsent = sum(failure.unsent for failure in sender.failures.values())
    run = f" as new, run {state.identity.run}" if state.identity.as_new else ""
    lines = [f"{published}{run}, {len(state.invalid)} invalid, {unsent} not sent"]
    if sender.failures:
        lines += ["Sends failed for these partition keys:", *sender.failure_lines()]
    if sender.gave_up:
        lines.append("No send succeeds any more: stopped before the end of the range.")
    if sender.failures or sender.gave_up:
        again = "the same command continues from here" if state.file else "without --state it starts over"
        lines.append(f"Fix the cause and run the command again: {again}.")
    return lines


def _remarks(state: ReplayState, counts: ReplayCounts, backend: OperatorBackend) -> list[str]:
    lines: list[str] = []
    if counts.skipped:
        lines.append(f"{counts.skipped} event(s) were handled by an earlier run.")
    if counts.ahead:
        wording = backend.wording
        lines.append(
            f"{counts.ahead.total()} event(s) of {len(counts.ahead)} partition key(s) were left to the relay, "
            f"whose {wording.positions} have not passed them yet: published now, they would overtake the events "
            "before them. Run the command again when the relay has caught up. "
            f"If no relay {wording.reads}, add --force."
        )
    if counts.parked:
        lines.append(
            Sentence(
                f"{counts.parked.total()} event(s) of {len(counts.parked)} parked partition key(s) were left: "
                "release their records first. To list them: ",
                LIST,
                ". --force publishes these events ahead of their records.",
            )
        )
    if counts.discarded:
        lines.append(
            f"{len(counts.discarded)} event(s) were left, because operators have discarded them. "
            "--force publishes them."
        )
    if counts.unread:
        lines.append(f"{counts.unread} event(s) of the range were not read: run the command again.")
    if state.identity.chosen.until > state.identity.started + 1:
        lines.append("The range ends in the future: events committed after the start of the replay are not in it.")
    return lines
