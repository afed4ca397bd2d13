"""The commands of `python -m outbox_relay.changefeed`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from outbox_relay import changefeed
from outbox_relay.changefeed import ulid
from outbox_relay.changefeed.errors import ArgumentError
from outbox_relay.changefeed.script import NOTHING_TO_DO, Recorder, missing_migrations
from outbox_relay.changefeed.shell import as_typed
from outbox_relay.changefeed.statements import Migration, run


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


Command = Callable[[changefeed.Session, Namespace], Outcome]


def install(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Bring the schema up to date, and repair feeds."""
    if arguments.sql:
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


def setup_feed(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Set up the feed of a table."""
    recorder = Recorder(session)
    changefeed.setup_feed(
        recorder if arguments.sql else session,
        arguments.table,
        notify=arguments.notify and not arguments.no_notify,
        roles=not arguments.no_roles,
        keep=arguments.keep,
    )
    if arguments.sql:
        return _script(session, (), recorder.recorded)
    return Outcome({"table": arguments.table}, [f"{arguments.table} has a feed"])


def _script(session: changefeed.Session, missing: Sequence[Migration], further: Sequence[str]) -> Outcome:
    """Return the statements of a command that has not run them."""
    sql = session.dialect.script(missing, further) if missing or further else NOTHING_TO_DO
    return Outcome({"sql": sql}, sql.splitlines())


def keep(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Change how long positions are kept."""
    changefeed.set_keep(session, arguments.table, arguments.duration)
    values = {"table": arguments.table, "keep": arguments.duration}
    return Outcome(values, [f"positions of {arguments.table} are kept: {arguments.duration}"])


def drop_feed(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Remove a feed."""
    changefeed.drop_feed(session, arguments.table)
    return Outcome({"table": arguments.table}, [f"{arguments.table} has no feed any more"])


def backfill(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Put rows that are not on the feed on it."""
    plan = changefeed.BackfillPlan(
        arguments.order_by, arguments.time_column, arguments.shard, arguments.shard_column, arguments.shards
    )
    rows = changefeed.backfill(session, arguments.table, plan, chunk=arguments.chunk, anyway=arguments.anyway)
    return Outcome({"rows": rows}, [f"{rows} rows are on the feed now"])


def prune(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Delete old positions."""
    try:
        before = datetime.now(UTC) - arguments.keep
    except OverflowError as error:
        raise ArgumentError(f"{arguments.keep.days} days are more than the calendar has") from error
    pruned = changefeed.prune(session, arguments.table, before)
    lines = [
        f"shard {one.shard_id}: {one.rows} rows deleted"
        + (f"; {one.held_by} has not read all of the older ones" if one.held_by else "")
        for one in pruned
    ]
    return Outcome({"shards": [asdict(one) for one in pruned]}, lines)


def read(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Print a page."""
    feed_id = _feed_id(arguments.feed)
    if feed_id is not None:
        reader = changefeed.Changes(session)
        numbered = reader.read(feed_id, arguments.shard, _number(arguments.cursor), arguments.limit)
        lines = [f"{one.change_sequence_number} change_id={one.change_id}" for one in numbered.changes]
        values = {"changes": [asdict(one) for one in numbered.changes], "cursor": numbered.cursor}
        return Outcome(values, [*lines, f"cursor {numbered.cursor}"])
    feed = changefeed.Feed(session, arguments.feed)
    page = feed.read(arguments.shard, _ulid(arguments.cursor), arguments.limit)
    entries, lines = [], []
    for one in page.entries:
        name, content = ("missing", one.key) if one.row is None else ("event", one.row)
        entries.append({"ulid": ulid.to_text(one.ulid), name: content})
        lines.append(f"{ulid.to_text(one.ulid)} {name} {dict(content)}")
    cursor = ulid.to_text(page.cursor)
    return Outcome({"entries": entries, "cursor": cursor}, [*lines, f"cursor {cursor}"])


def wait(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Wait until there is something behind the cursor."""
    feed_id, shard, timeout_s = _feed_id(arguments.feed), arguments.shard, arguments.timeout
    if feed_id is not None:
        news = changefeed.Changes(session).wait(feed_id, shard, _number(arguments.cursor), timeout_s)
    else:
        news = changefeed.Feed(session, arguments.feed).wait(shard, _ulid(arguments.cursor), timeout_s)
    return Outcome({"news": news}, ["there is something to read" if news else "nothing came"], 0 if news else 1)


def sweep(session: changefeed.Session, arguments: Namespace) -> Outcome:
    """Give changes their numbers: once, or until interrupted."""
    total = changefeed.Swept(0, 0, 0)
    if not arguments.once:
        while True:
            swept = changefeed.sweep_loop(session, arguments.group, duration_s=arguments.seconds)
            print(_swept(swept), flush=True)
    while (swept := changefeed.sweep(session, arguments.group)).change_count:
        total += swept
    return Outcome(asdict(total), [_swept(total)])


def status(session: changefeed.Session, _arguments: Namespace) -> Outcome:
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
        decide = as_typed("python -m outbox_relay.changefeed keep schema.Table 30d")
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
