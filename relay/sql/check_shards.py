"""Checks the shards of an SQL feed: who reads them, how far they are, and what would never be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from relay.findings import Finding, Level
from relay.settings import SqlFeed
from relay.sql.facts import Owner, ShardFacts, SqlFacts
from relay.times import format_duration

_LATE_S = 300.0

_NAMED_SHARDS = 10


def check_shards(facts: SqlFacts, feed: SqlFeed) -> Iterator[Finding]:
    """The findings about the shards of a feed that is set up."""
    subject = f"SQL_FEED '{feed.feed}'"
    if facts.waiting is None:
        yield Finding(
            Level.UNKNOWN,
            f"the rows in the outbox table of {subject} cannot be read with these rights",
            f'Run check with a login that may select from changefeed."outbox:{feed.feed}" and '
            f'changefeed."state:{feed.feed}". The app itself need not.',
        )
    else:
        yield from _never_read(subject, facts, feed)
    if facts.given_up:
        names = _listed([str(shard_id) for shard_id in facts.given_up])
        yield Finding(
            Level.ERROR,
            f"{subject} has events that are not published in shard {names}, "
            f"which a relay has read before: SQL_SHARDS is {feed.shards}, so nobody reads them any more",
            "Set SQL_SHARDS to what it was, on every process of the relay, until they are published.",
        )
    yield from _cursors(subject, facts.shards)
    yield from _owners(subject, facts.shards)
    yield from _late(subject, facts)


def _never_read(subject: str, facts: SqlFacts, feed: SqlFeed) -> Iterator[Finding]:
    waiting = facts.waiting or {}
    outside = {shard_id: each.rows for shard_id, each in waiting.items() if not 0 <= shard_id < feed.shards}
    if outside:
        counts = _listed([f"{rows} in shard {shard_id}" for shard_id, rows in outside.items()])
        yield Finding(
            Level.ERROR,
            f"{subject} has {sum(outside.values())} row(s) in shards that nobody reads ({counts}): SQL_SHARDS is "
            f"{feed.shards}, so the relay reads the shards 0 to {feed.shards - 1}",
            "Set SQL_SHARDS to the highest shard of the writers plus one, on every process of the relay, or let "
            "the writers use these shards only. What waits is then relayed.",
        )


def _cursors(subject: str, shards: tuple[ShardFacts, ...]) -> Iterator[Finding]:
    ahead = [shard for shard in shards if shard.ahead]
    if ahead:
        yield Finding(
            Level.ERROR,
            f"the relay's cursor is ahead of the last position of {subject} in {_shards(ahead)}: every read is "
            "refused. The database was restored in part, or the feed was set up again",
            "Set last_ulid of these shards in the table of claims to the last position of the feed up to which "
            "events were published, or to zeros to publish everything in the feed again; docs/operators.md says "
            "how.",
        )


def _owners(subject: str, shards: tuple[ShardFacts, ...]) -> Iterator[Finding]:
    nobody = [shard for shard in shards if shard.owner is Owner.NOBODY]
    silent = [shard for shard in shards if shard.owner is Owner.SILENT]
    if nobody:
        yield Finding(
            Level.ERROR,
            f"no process reads {_shards(nobody)} of {subject}: nothing of it is relayed",
            "Start the relay with these settings, and look at what it logged (relay_claims_unavailable).",
        )
    if silent:
        yield Finding(
            Level.ERROR,
            f"the process that reads {_shards(silent)} of {subject} shows no sign of life, and no other has taken "
            "over: nothing of it is relayed",
            "Start the relay with these settings. A new process takes the shards over when the claim has ended "
            "(SQL_CLAIM_S).",
        )
    if shards and not nobody and not silent:
        yield Finding(Level.OK, f"{subject} is read: each of its {len(shards)} shard(s) has a living owner")


def _late(subject: str, facts: SqlFacts) -> Iterator[Finding]:
    waiting = facts.waiting or {}
    ages = {shard.shard_id: shard.oldest_s for shard in facts.shards if shard.oldest_s is not None}
    for shard_id, each in waiting.items():
        if shard_id in {shard.shard_id for shard in facts.shards}:
            ages[shard_id] = max(ages.get(shard_id, 0.0), each.oldest_s)
    late = {shard_id: age_s for shard_id, age_s in ages.items() if age_s > _LATE_S}
    if late:
        oldest = format_duration(timedelta(seconds=round(max(late.values()))))
        names = _listed([str(shard_id) for shard_id in late])
        yield Finding(
            Level.WARNING,
            f"{subject} has events that wait for longer than PT5M to be published, the oldest for {oldest}, in "
            f"shard {names}",
            "Look at what the relay logged last for these shards (relay_failed, relay_feed_unavailable). If it is "
            "working through a backlog, wait.",
        )
    elif facts.shards:
        yield Finding(Level.OK, f"no event of {subject} waits for longer than PT5M to be published")


def _shards(shards: list[ShardFacts]) -> str:
    return "shard " + _listed([str(shard.shard_id) for shard in shards])


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_SHARDS
    return ", ".join(names[:_NAMED_SHARDS]) + (f" and {more} more" if more > 0 else "")
