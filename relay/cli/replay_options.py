"""The options of `python -m relay replay`, and what they choose."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil, floor
from pathlib import Path

from relay.cli.arguments import reported
from relay.errors import UsageError
from relay.place import ulid_time
from relay.settings import Settings
from relay.times import format_time, parse_moment

# The last second of the year 9999: with --from-cursor, --to need not be given.
_FOREVER = 253_402_300_799

EXAMPLES = """\
examples:
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --dry-run
  python -m relay replay --from 2026-02-09T11:00Z --to 2026-02-09T12:00Z --state incident-42.state
  python -m relay replay --from 2h --to 10m --dry-run
  python -m relay replay --from 1770634800 --to 1770638400 --action ContactNameUpdatedEvent --as-new
  python -m relay replay --source sql --from-cursor 01KH0QWAJVHHVPN1AHM27M3NXG --id 7c1f --id 90aa   (SQL)

Publishes the events that are still in the outbox and were committed at --from or later and before --to, in commit
order within each partition key. Events whose ttl has passed are gone. --from 1h is an hour before now; --state
needs times, as the same command must then choose the same range.

Without --as-new, events keep their ids. The topic drops those that it received within its duplicate detection
window, so a replay within the window fills gaps only; events from before the window are delivered again. An
event that fills a gap arrives after the later events of its partition key.

With --as-new, each event gets the id <id>:replay:<run> (at most 128 characters) and keeps its own id in the
application property originalId. Every subscription of the topic receives all of them again. Consumers that
recognise duplicates by message id treat them as new; consumers that compare originalId do not.

Events that the relay has not passed yet, according to its leases or cursors, are left to it: published now, they
would overtake the events before them. Events of parked partition keys are left too, as records of them are in
quarantine. --force publishes both.

From an SQL outbox, the time of an event is that of its position in the feed, and the feed keeps every event whose
row still exists. --from-cursor begins behind a position; --id and --shard narrow the range. Events whose row is
gone are reported.

With --state, progress is stored in a file after each accepted chunk. Run the same command again to continue
after an interruption. It keeps the run, so an event that was accepted but not noted is dropped as a
duplicate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    when = "ISO 8601, UTC unless it has an offset; seconds since 1970; or how long ago, as 1h30m"
    parser.add_argument(
        "--from", dest="since", type=reported(parse_moment), metavar="T", help=f"the beginning: {when}"
    )
    parser.add_argument(
        "--to",
        dest="until",
        type=reported(parse_moment),
        metavar="T",
        help="the end, exclusive, written like --from (default: now, if --from is how long ago)",
    )
    parser.add_argument(
        "--from-cursor",
        metavar="ULID",
        help="SQL: instead of --from, the position behind which to begin; needs no --to",
    )
    parser.add_argument("--shard", type=int, metavar="N", help="SQL: only events of this shard")
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="SQL: only events with this id; may be repeated"
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
        "--force", action="store_true", help="also publish events that are left to the relay or to a release"
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="store progress here, and resume from it")


@dataclass(frozen=True, slots=True)
class Choice:
    """The range of a replay: `since <= time < until` in whole seconds since 1970, and what only SQL has."""

    since: int
    until: int
    ids: list[str] = field(default_factory=list)
    shard: int | None = None
    cursor: str | None = None


def choice_of(arguments: argparse.Namespace, settings: Settings) -> Choice:
    """What the options choose, of settings with one outbox.

    Raises:
        UsageError: They contradict each other, or the range is empty or reversed.
    """
    _resolve(arguments, time.time())
    if settings.sql is None and (arguments.from_cursor or arguments.id or arguments.shard is not None):
        raise UsageError("--from-cursor, --id and --shard are for an SQL outbox")
    if arguments.from_cursor is not None:
        return _behind_cursor(arguments, settings)
    if arguments.since is None or arguments.until is None:
        raise UsageError("give --from and --to" + (", or --from-cursor" if settings.sql is not None else ""))
    since, until = floor(arguments.since), ceil(arguments.until)
    if since >= until:
        raise UsageError(
            f"the range from {format_time(since)} to {format_time(until)} is empty: --from must be before --to"
        )
    return Choice(since, until, sorted(arguments.id), arguments.shard)


def _resolve(arguments: argparse.Namespace, now: float) -> None:
    """Replace how long ago by the time, in seconds since 1970."""
    ago = {"--from": arguments.since, "--to": arguments.until}
    ago = {name: value for name, value in ago.items() if isinstance(value, timedelta)}
    times = {name: now - value.total_seconds() for name, value in ago.items()}
    if arguments.state is not None and times:
        # The same command would ask for another range when it resumes.
        fixed = " ".join(f"{name} {format_time(floor(value))}" for name, value in times.items())
        raise UsageError(f"--state: a replay that can be resumed has a fixed range: write {fixed}")
    if "--from" in times and arguments.until is None:
        arguments.until = floor(now)
    arguments.since = times.get("--from", arguments.since)
    arguments.until = times.get("--to", arguments.until)


def _behind_cursor(arguments: argparse.Namespace, settings: Settings) -> Choice:
    if arguments.since is not None:
        raise UsageError("give either --from or --from-cursor")
    if arguments.shard is None and settings.sql is not None and settings.sql.shards > 1:
        raise UsageError("--from-cursor: a position is of one shard: add --shard")
    try:
        since = ulid_time(arguments.from_cursor)
    except ValueError as error:
        raise UsageError(f"--from-cursor: {error}") from error
    until = _FOREVER if arguments.until is None else ceil(arguments.until)
    if since >= until:
        raise UsageError(f"the range is empty: the position is of {format_time(since)}, which is not before --to")
    return Choice(since, until, sorted(arguments.id), arguments.shard, arguments.from_cursor.upper())
