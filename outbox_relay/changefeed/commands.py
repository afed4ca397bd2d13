"""The commands of `python -m outbox_relay.changefeed`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from cyclopts import Group, Parameter, validators

from outbox_relay import changefeed
from outbox_relay.changefeed import ulid
from outbox_relay.changefeed.errors import ArgumentError
from outbox_relay.changefeed.program import PROGRAM
from outbox_relay.changefeed.script import NOTHING_TO_DO, Recorder, missing_migrations
from outbox_relay.changefeed.statements import Migration, run
from outbox_relay.command_line import number, value, whole_number


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command.

    Attributes:
        values: The members of its JSON object.
        lines: The same, to be read.
        code: The exit code.
    """

    values: Mapping[str, Any]
    lines: Sequence[str]
    code: int = 0


URL = "CHANGEFEED_URL"
"""The variable with the database, for all commands."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of every command.

    Attributes:
        json: print one JSON object
    """

    url: Annotated[
        str | None,
        Parameter(help=f"postgresql://user@host/database, or Server=…;Database=…;… (default: the variable {URL})"),
    ] = None
    json: bool = False


Connected = Annotated[changefeed.Session, Parameter(parse=False)]
"""The session of a command."""

Table = Annotated[str, Parameter(name="TABLE", help="schema.Table")]
Feed = Annotated[str, Parameter(name="FEED", help="schema.Table, or the feed_id of generation 1")]
Keep = Annotated[
    str,
    Parameter(
        name="DURATION",
        help="how long positions that every consumer has read are kept, such as 30d or 12h, or forever",
    ),
]
Shard = Annotated[int, value(whole_number, metavar="N", help="the shard to read")]
Cursor = Annotated[
    str | None, Parameter(help="the position to continue from, as a read printed it (default: the beginning)")
]
AsScript = Annotated[
    bool,
    Parameter(name="--sql", help="print the statements instead of running them, for the owner of the database"),
]

_DURATION = re.compile(r"([1-9][0-9]{0,4})([dh])")


def _duration(text: str) -> timedelta:
    """Parse the durations of `keep`, as the migrations do. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a number of days or hours: write it as 30d or 12h")
    amount = int(found[1])
    return timedelta(days=amount) if found[2] == "d" else timedelta(hours=amount)


_AGE = Group("Age", validator=validators.LimitedChoice(1, 1))


def _days(text: str) -> timedelta:
    try:
        return timedelta(days=number(text))
    except OverflowError:
        raise ValueError(f"{text} days are more than the calendar has") from None


def install(*, sql: AsScript = False, options: Options = Options(), session: Connected) -> Outcome:
    """Bring the schema changefeed up to date, and repair feeds."""
    if sql:
        recorder = Recorder(session)
        version, missing = run(session, missing_migrations(session.dialect))
        if version and not missing:
            changefeed.repair(recorder)
        return _script(session, missing, recorder.recorded)
    applied = changefeed.install(session)
    repaired = changefeed.repair(session)
    lines = [f"applied {name}" for name in applied] or ["the schema is up to date"]
    lines += [f"made what the feed of {table} lacked again" for table in repaired]
    return Outcome({"applied": applied, "repaired": repaired}, lines)


def setup_feed(
    table: Table,
    /,
    *,
    notify: bool = False,
    no_notify: bool = False,
    no_roles: bool = False,
    keep: Annotated[Keep, Parameter(name="--keep", metavar="DURATION")],
    sql: AsScript = False,
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Set up the feed of a table.

    Args:
        notify: PostgreSQL: commits wake readers, and writers pay for it
        no_notify: readers look every 4 to 150 ms (default)
        no_roles: create no roles for writers and readers
    """
    recorder = Recorder(session)
    changefeed.setup_feed(
        recorder if sql else session, table, notify=notify and not no_notify, roles=not no_roles, keep=keep
    )
    if sql:
        return _script(session, (), recorder.recorded)
    return Outcome({"table": table}, [f"{table} has a feed"])


def _script(session: changefeed.Session, missing: Sequence[Migration], further: Sequence[str]) -> Outcome:
    """Return the statements of a command that has not run them."""
    sql = session.dialect.script(missing, further) if missing or further else NOTHING_TO_DO
    return Outcome({"sql": sql}, sql.splitlines())


def keep(table: Table, duration: Keep, /, *, options: Options = Options(), session: Connected) -> Outcome:
    """Change how long the positions of a feed are kept."""
    changefeed.set_keep(session, table, duration)
    return Outcome({"table": table, "keep": duration}, [f"positions of {table} are kept: {duration}"])


def drop_feed(
    table: Table,
    /,
    *,
    yes: Annotated[bool, Parameter(required=True)],
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Remove a feed with its outbox and positions.

    Args:
        yes: confirm that it is to be removed
    """
    if not yes:
        raise ArgumentError("confirm with --yes that the feed is to be removed")
    changefeed.drop_feed(session, table)
    return Outcome({"table": table}, [f"{table} has no feed any more"])


def backfill(
    table: Table,
    /,
    *,
    order_by: Annotated[tuple[str, ...], Parameter(metavar="COLUMN", consume_multiple=(1, None))],
    time_column: Annotated[str | None, Parameter(metavar="COLUMN")] = None,
    shard: Annotated[int, value(whole_number, metavar="N")] = 0,
    shard_column: Annotated[str | None, Parameter(metavar="COLUMN")] = None,
    shards: Annotated[int, value(whole_number, metavar="N")] = 1,
    chunk: Annotated[int, value(whole_number, metavar="ROWS")] = 1000,
    anyway: bool = False,
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Put the rows of a table that are not on its feed on it.

    Args:
        order_by: columns that sort the rows, oldest first
        time_column: column with the times for the ULIDs (default: now)
        shard: shard of all rows
        shard_column: instead of --shard: the column whose hash is the shard
        shards: with --shard-column: how many shards there are
        chunk: rows in one transaction
        anyway: also if the rows come behind what was read or written before
    """
    plan = changefeed.BackfillPlan(order_by, time_column, shard, shard_column, shards)
    rows = changefeed.backfill(session, table, plan, chunk=chunk, anyway=anyway)
    return Outcome({"rows": rows}, [f"{rows} rows are on the feed now"])


def prune(
    table: Table,
    /,
    *,
    age: Annotated[timedelta | None, value(_duration, name="--keep", metavar="DURATION", group=_AGE)] = None,
    days: Annotated[timedelta | None, value(_days, metavar="N", group=_AGE)] = None,
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Delete old positions that every consumer has read.

    Args:
        age: delete positions that are older, such as 30d or 12h
        days: the same in days; fractions are allowed
    """
    oldest = age or days or timedelta()
    try:
        before = datetime.now(UTC) - oldest
    except OverflowError as error:
        raise ArgumentError(f"{oldest.days} days are more than the calendar has") from error
    pruned = changefeed.prune(session, table, before)
    lines = [
        f"shard {one.shard_id}: {one.rows} rows deleted"
        + (f"; {one.held_by} has not read all of the older ones" if one.held_by else "")
        for one in pruned
    ]
    return Outcome({"shards": [asdict(one) for one in pruned]}, lines)


def read(
    feed: Feed,
    /,
    *,
    shard: Shard = 0,
    cursor: Cursor = None,
    limit: Annotated[int, value(whole_number, metavar="N")] = 100,
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Print a page of a feed.

    Args:
        limit: at most this many, 1 to 1000
    """
    feed_id = _feed_id(feed)
    if feed_id is not None:
        reader = changefeed.Changes(session)
        numbered = reader.read(feed_id, shard, _number(cursor), limit)
        lines = [f"{one.change_sequence_number} change_id={one.change_id}" for one in numbered.changes]
        values = {"changes": [asdict(one) for one in numbered.changes], "cursor": numbered.cursor}
        return Outcome(values, [*lines, f"cursor {numbered.cursor}"])
    page = changefeed.Feed(session, feed).read(shard, _ulid(cursor), limit)
    entries, lines = [], []
    for one in page.entries:
        name, content = ("missing", one.key) if one.row is None else ("event", one.row)
        entries.append({"ulid": ulid.to_text(one.ulid), name: content})
        lines.append(f"{ulid.to_text(one.ulid)} {name} {dict(content)}")
    end = ulid.to_text(page.cursor)
    return Outcome({"entries": entries, "cursor": end}, [*lines, f"cursor {end}"])


def wait(
    feed: Feed,
    /,
    *,
    shard: Shard = 0,
    cursor: Cursor = None,
    timeout: Annotated[float, value(number, metavar="S")] = 30.0,
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Wait until there is something behind the cursor.

    Args:
        timeout: seconds to wait
    """
    feed_id = _feed_id(feed)
    if feed_id is not None:
        news = changefeed.Changes(session).wait(feed_id, shard, _number(cursor), timeout)
    else:
        news = changefeed.Feed(session, feed).wait(shard, _ulid(cursor), timeout)
    return Outcome({"news": news}, ["there is something to read" if news else "nothing came"], 0 if news else 1)


def sweep(
    *,
    group: Annotated[int, value(whole_number, metavar="N")] = 0,
    once: bool = False,
    seconds: Annotated[float, value(number, metavar="S")] = 50.0,
    options: Options = Options(),
    session: Connected,
) -> Outcome:
    """Number the changes of generation 1, until interrupted.

    Args:
        group: the sweep group
        once: number what is committed by now, and end
        seconds: seconds between two reports
    """
    total = changefeed.Swept(0, 0, 0)
    if not once:
        while True:
            swept = changefeed.sweep_loop(session, group, duration_s=seconds)
            print(_swept(swept), flush=True)
    while (swept := changefeed.sweep(session, group)).change_count:
        total += swept
    return Outcome(asdict(total), [_swept(total)])


def status(*, options: Options = Options(), session: Connected) -> Outcome:
    """Show feeds, consumers and sweep groups."""
    found = changefeed.status(session)
    return Outcome(_with_texts(asdict(found)), list(_status_lines(found)) or ["there is no feed"])


def _with_texts(value: Any) -> Any:
    """Return the value with each position as text, the form that `read` takes and prints."""
    if isinstance(value, dict):
        return {name: _with_texts(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_texts(member) for member in value]
    return ulid.to_text(value) if isinstance(value, bytes) else value


def _status_lines(found: changefeed.Status) -> Iterator[str]:
    for feed in found.feeds:
        yield feed.table
        yield f"  about {feed.rows} positions, {feed.bytes / 2**20:.1f} MiB; {_kept(feed.keep)}"
        for shard in feed.shards:
            oldest = "" if shard.oldest_s is None else f", the oldest {shard.oldest_s:.1f} s old"
            last = "none" if shard.last_ulid is None else f"{ulid.to_text(shard.last_ulid)} of {shard.last_time}"
            yield f"  shard {shard.shard_id}: {shard.outbox_rows} in the outbox{oldest}; last position {last}"
            for consumer in shard.consumers:
                yield (
                    f"    {consumer.consumer}: owner {consumer.owner or 'none'}, "
                    f"cursor {ulid.to_text(consumer.cursor)}, {consumer.behind} behind"
                    + (", AHEAD of the last position given" if consumer.ahead else "")
                )
    for group in found.sweep_groups:
        yield f"sweep group {group.sweep_group}"
        for one in group.shards:
            lag = "" if one.lag_s is None else f", the oldest for {one.lag_s:.1f} s"
            yield (
                f"  feed {one.feed_id} shard {one.shard}: numbered to {one.last_change_sequence_number}; "
                f"{one.waiting} waiting{lag}"
            )


def _kept(keep: str | None) -> str:
    if keep is None:
        decide = PROGRAM.as_typed("python -m outbox_relay.changefeed keep schema.Table 30d")
        return f"nobody has decided how long positions are kept, so all are ({decide})"
    return "all positions are kept" if keep == "forever" else f"positions are kept for {keep}"


def _swept(swept: changefeed.Swept) -> str:
    return (
        f"{swept.change_count} changes numbered, lag {swept.max_lag_milliseconds} ms at most, "
        f"{swept.iterations} passes"
    )


def _feed_id(feed: str) -> int | None:
    return int(feed) if feed.isascii() and feed.isdigit() else None


def _number(cursor: str | None) -> int:
    try:
        return int(cursor or 0)
    except ValueError as error:
        raise ArgumentError("the cursor of a numbered feed is a change_sequence_number") from error


def _ulid(cursor: str | None) -> bytes:
    try:
        return ulid.from_text(cursor) if cursor else ulid.START
    except ValueError as error:
        raise ArgumentError(str(error)) from error
