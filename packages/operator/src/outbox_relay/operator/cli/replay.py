"""`python -m relay replay`: publishes events again that are still in the outbox."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Mapping, Set
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from math import ceil, floor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.cli.arguments import Commands, one_outbox, reported
from outbox_relay.operator.cli.quarantine_admin import Discarded, open_records
from outbox_relay.operator.cli.replay_run import Replay, ReplayCounts, ReplayIdentity, ReplayState
from outbox_relay.operator.cli.sender import OrderedSender, Rehearsal, ordered_sender, rehearsal
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal
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


def add_to(commands: Commands) -> None:
    parser = commands.add("replay", "publish events of the outbox again", EXAMPLES, run, one_outbox=True)
    when = "ISO 8601, UTC unless it has an offset; seconds since 1970; or how long ago, as 1h30m"
    parser.add_argument(
        "--from", dest="since", type=reported(parse_moment), metavar="T", help=f"the beginning: {when}"
    )
    parser.add_argument(
        "--to",
        dest="until",
        type=reported(parse_moment),
        metavar="T",
        help="the end, exclusive, written like --from (default: now)",
    )
    parser.add_argument(
        "--from-cursor",
        metavar="ULID",
        help="SQL: instead of --from, the position behind which to begin; needs no --to",
    )
    parser.add_argument("--shard", type=int, metavar="N", help="SQL: only events of this shard")
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="only events with this id; may be repeated"
    )
    parser.add_argument("--partition-key", metavar="KEY", help="only events of this partition key")
    parser.add_argument("--action", metavar="ACTION", help="only events with this data.action")
    parser.add_argument(
        "--dry-run", action="store_true", help="count the events by key and action, and send nothing"
    )
    parser.add_argument(
        "--as-new", action="store_true", help="publish with new ids, so that consumers receive the events again"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="also publish events that are left to the relay or to a release, or that were discarded",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="store progress here, and resume from it")


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], terminal: Terminal) -> Result:
    """Publish the events again, or count what a replay would publish."""
    backend = one_outbox(arguments, environment)
    settings, chosen = backend.settings, _range(arguments, backend)
    async with AsyncExitStack() as stack:
        outbox = backend.open_outbox()
        stack.push_async_callback(outbox.close)
        identity = await _identity(chosen, arguments, backend, outbox)
        # A dry run reads a state file, and makes none.
        no_file = arguments.dry_run and arguments.state is not None and not arguments.state.exists()
        state = ReplayState.begin(identity, None if no_file else arguments.state)
        if state.finished:
            return _result(state, ReplayCounts(), None, backend, dry_run=False)
        sender: OrderedSender | Rehearsal
        if arguments.dry_run:
            sender = await stack.enter_async_context(rehearsal(settings, with_original_id=arguments.as_new))
        else:
            sender = await stack.enter_async_context(ordered_sender(settings, with_original_id=arguments.as_new))
        parked: Set[str] | None = None
        discarded: Mapping[Discarded, Removed] = {}
        if not arguments.force:
            records = await stack.enter_async_context(open_records(backend))
            parked = (await records.parked()).keys()
            discarded = await records.discarded()
        # The app publishes events committed after the start of the replay, even if --to is in the future.
        until = min(state.identity.chosen.until, state.identity.started + 1)
        reading = await outbox.in_range(replace(state.identity.chosen, until=until))
        replay = Replay(outbox, reading, sender, parked, discarded, state)
        await replay.run(terminal)
        sent_by = sender if isinstance(sender, OrderedSender) else None
        return _result(state, replay.counts, sent_by, backend, dry_run=arguments.dry_run)


def _range(arguments: argparse.Namespace, backend: OperatorBackend) -> Range:
    """Return the range that the options choose, for one outbox.

    Raises:
        UsageError: They contradict each other, or the range is empty or reversed.
    """
    since, until = _resolved(arguments, time.time())
    if backend.shards is None and (arguments.from_cursor or arguments.shard is not None):
        raise UsageError("--from-cursor and --shard are for an SQL outbox")
    cursor = None
    if arguments.from_cursor is not None:
        since, until = _behind_cursor(arguments, until, backend)
        cursor = arguments.from_cursor.upper()
    elif since is None or until is None:
        raise UsageError("give --from" + (", or --from-cursor" if backend.shards is not None else ""))
    since, until = floor(since), ceil(until)
    if since >= until:
        raise UsageError(
            f"the range from {format_time(since)} to {format_time(until)} is empty: --from must be before --to"
        )
    ids = sorted(arguments.id)
    return Range(since, until, arguments.partition_key, arguments.action, ids, arguments.shard, cursor)


def _resolved(arguments: argparse.Namespace, now: float) -> tuple[float | None, float | None]:
    """Return `--from` and `--to` in seconds since 1970, also if they are how long ago; None if not given."""
    times = {"--from": arguments.since, "--to": arguments.until}
    ago = {name: now - value.total_seconds() for name, value in times.items() if isinstance(value, timedelta)}
    if arguments.since is not None and arguments.until is None:
        # Events that were committed in this second are in the range: the outbox may store whole seconds.
        ago["--to"] = floor(now) + 1
    if arguments.state is not None and ago:
        # The same command would ask for another range when it resumes.
        fixed = " ".join(f"{name} {format_time(floor(value))}" for name, value in ago.items())
        raise UsageError(f"--state: a replay that can be resumed has a fixed range: write {fixed}")
    return ago.get("--from", arguments.since), ago.get("--to", arguments.until)


def _behind_cursor(
    arguments: argparse.Namespace, until: float | None, backend: OperatorBackend
) -> tuple[int, float]:
    """Return the time of `--from-cursor`, and the end of the range."""
    if arguments.since is not None:
        raise UsageError("give either --from or --from-cursor")
    if arguments.shard is None and backend.shards is not None and backend.shards > 1:
        raise UsageError("--from-cursor: a position is of one shard: add --shard")
    try:
        since = ulid_time(arguments.from_cursor)
    except ValueError as error:
        raise UsageError(f"--from-cursor: {error}") from error
    if until is not None and since >= ceil(until):
        raise UsageError(f"the range is empty: the position is of {format_time(since)}, which is not before --to")
    return since, _FOREVER if until is None else until


async def _identity(
    chosen: Range, arguments: argparse.Namespace, backend: OperatorBackend, outbox: Outbox
) -> ReplayIdentity:
    settings = backend.settings
    return ReplayIdentity(
        chosen,
        as_new=arguments.as_new,
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
