"""The state of an SQL outbox's feed: the reader and position of each shard, and the events that wait.

`scan` finds the events that the relay would quarantine, before it reaches them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from outbox_relay.changefeed import START, AsyncConsumer, Claim, DatabaseError, Entry
from outbox_relay.changefeed.statements import AsyncSession, run_async
from outbox_relay.changefeed.tables import Waiting
from outbox_relay.changefeed.ulid import milliseconds
from outbox_relay.operator.backends.scans import Places, Refused, Scan, refused_findings
from relay.backends.canary import is_canary
from relay.backends.findings import Finding
from relay.backends.sql.catalog import tables_of
from relay.backends.sql.database import FAILURES, connect, explaining
from relay.backends.sql.memory import Memory, PageSize, size_of
from relay.backends.sql.rows import document_if_taken, document_of, event_in, position_time
from relay.config.settings import OnPoison, SqlFeed
from relay.core.errors import first_line
from relay.core.events import Event, Rejected
from relay.core.times import format_duration

# Seconds between two looks at the owners of claims.
_LOOKS_EVERY_S = 0.25

_LATE_S = 300.0

# A feed that is younger says little about how it grows.
_GROWTH_FROM_S = 3600.0
_DAY_S = 86400.0
_MIB = 2**20

# Maximum number of shards that a finding names; the others are counted.
_NAMED_SHARDS = 10

# Maximum rows of a page of a scan.
_PAGE_ROWS = 500


class Backlog:
    """The feed of the settings, which is set up. Its methods raise ChangefeedError."""

    def __init__(self, session: AsyncSession, feed: SqlFeed, now_ms: int, readable: Collection[str]) -> None:
        """Create the scan.

        `now_ms`: the server's clock, in milliseconds since 1970. `readable`: what may be selected from.
        """
        self._session = session
        self._feed = feed
        self._subject = f"SQL_FEED '{feed.feed}'"
        self._now_ms = now_ms
        self._readable = readable
        self._tables = tables_of(session.dialect, feed)
        self._shards = range(feed.shards)

    async def findings(self) -> list[Finding]:
        found = [each async for each in self._size()] if "feed" in self._readable else []
        waiting: Mapping[int, Waiting] = {}
        if "outbox" in self._readable:
            waiting = await run_async(self._session, self._tables.waiting())
            found += self._never_read(waiting)
        else:
            found.append(
                Finding.unknown(
                    f"the rows in the outbox table of {self._subject} cannot be read with these rights",
                    f'Run check with a login that may select from changefeed."outbox:{self._feed.feed}" and '
                    f'changefeed."state:{self._feed.feed}". The app itself need not.',
                )
            )
        if "claim" not in self._readable:
            return found
        claims, living = await self._watch()
        cursors = {shard_id: claim.cursor for shard_id, claim in claims.items()}
        found += [each async for each in self._positions(cursors)]
        return [*found, *self._owners(claims, living), await self._late(waiting, cursors)]

    async def _size(self) -> AsyncIterator[Finding]:
        """Yield the finding about the feed's size, unless it is empty. These rights may not suffice to read it."""
        ages = [await self._oldest_s(shard_id, START) for shard_id in self._shards]
        since_s = max((age_s for age_s in ages if age_s is not None), default=None)
        if since_s is None:
            return
        try:
            rows, size = await run_async(self._session, self._session.dialect.size(self._feed.feed))
        except DatabaseError as error:
            # SQL Server shows sizes to logins with VIEW DATABASE STATE only.
            if error.lost:
                raise
            return
        growth = ""
        if since_s >= _GROWTH_FROM_S:
            growth = f", which is {size / _MIB * _DAY_S / since_s:.1f} MiB a day"
        said = f"has about {rows} positions of the last {_duration(since_s)} in {size / _MIB:.1f} MiB{growth}"
        yield Finding.ok(f"the feed of {self._subject} {said}")

    def _never_read(self, waiting: Mapping[int, Waiting]) -> Iterator[Finding]:
        outside = {shard_id: each.rows for shard_id, each in waiting.items() if shard_id not in self._shards}
        if outside:
            counts = _listed([f"{rows} in shard {shard_id}" for shard_id, rows in outside.items()])
            yield Finding.error(
                f"{self._subject} has {sum(outside.values())} row(s) in shards that nobody reads ({counts}): "
                f"SQL_SHARDS is {self._feed.shards}, so the relay reads the shards 0 to {self._feed.shards - 1}",
                "Set SQL_SHARDS to the highest shard of the writers plus one, on every process of the relay, or "
                "let the writers use these shards only. What waits is then relayed.",
            )

    async def _watch(self) -> tuple[dict[int, Claim], set[int]]:
        """Return the claims, and the shards whose owner is alive.

        An owner is alive once it has renewed its claim. A shard without one may be between two owners: until a
        claim would have ended, there is another look.
        """
        ends = time.monotonic() + self._feed.claim_s
        first: dict[int, Claim] = {}
        consumer = AsyncConsumer(self._session, self._feed.feed, self._feed.consumer)
        while True:
            claims = await consumer.existing()
            living = set()
            for shard_id, claim in claims.items():
                seen = first.setdefault(shard_id, claim)
                if claim.owner is not None and (seen.owner, seen.version) != (claim.owner, claim.version):
                    living.add(shard_id)
            # If no shard was ever claimed, there is no renewal to wait for.
            if living.issuperset(self._shards) or not claims or time.monotonic() >= ends:
                return claims, living
            await asyncio.sleep(_LOOKS_EVERY_S)

    async def _positions(self, cursors: Mapping[int, bytes]) -> AsyncIterator[Finding]:
        """Yield the findings about shards that are read no more, and about cursors that would skip events."""
        outside = sorted(cursors.keys() - set(self._shards)) if "feed" in self._readable else []
        if left := [each for each in outside if await self._oldest_s(each, cursors[each]) is not None]:
            yield Finding.error(
                f"{self._subject} has events that are not published in {_shards(left)}, which a relay has read "
                f"before: SQL_SHARDS is {self._feed.shards}, so nobody reads them any more",
                "Set SQL_SHARDS to what it was, on every process of the relay, until they are published.",
            )
        if "state" not in self._readable:
            return
        last = await run_async(self._session, self._tables.last_positions())
        ahead = [each for each in self._shards if cursors.get(each, START) > last.get(each, START)]
        if "feed" in self._readable:
            # A feed may have been filled by hand: its last position counts too.
            on_feed = {each: await run_async(self._session, self._tables.last_position(each)) for each in ahead}
            ahead = [each for each in ahead if cursors[each] > on_feed[each]]
        if ahead:
            yield Finding.error(
                f"the relay's cursor is ahead of the last position of {self._subject} in {_shards(ahead)}: every "
                "read is refused. The database was restored in part, or the feed was set up again",
                "Set last_ulid of these shards in the table of claims to the last position of the feed up to "
                "which events were published, or to zeros to publish everything in the feed again; "
                "docs/operators.md says how.",
            )

    def _owners(self, claims: Mapping[int, Claim], living: Collection[int]) -> Iterator[Finding]:
        nobody = [each for each in self._shards if each not in claims or claims[each].owner is None]
        silent = [each for each in self._shards if each not in nobody and each not in living]
        if nobody:
            yield Finding.error(
                f"no process reads {_shards(nobody)} of {self._subject}: nothing of it is relayed",
                "Start the relay with these settings, and look at what it logged (relay_claims_unavailable).",
            )
        if silent:
            yield Finding.error(
                f"the process that reads {_shards(silent)} of {self._subject} shows no sign of life, and no other "
                "has taken over: nothing of it is relayed",
                "Start the relay with these settings. A new process takes the shards over when the claim has "
                "ended (SQL_CLAIM_S).",
            )
        if not nobody and not silent:
            said = f"{self._subject} is read: each of its {len(self._shards)} shard(s) has a living owner"
            yield Finding.ok(said)

    async def _late(self, waiting: Mapping[int, Waiting], cursors: Mapping[int, bytes]) -> Finding:
        ages = {each: waiting[each].oldest_s for each in self._shards if each in waiting}
        if "feed" in self._readable:
            for shard_id in self._shards:
                age_s = await self._oldest_s(shard_id, cursors.get(shard_id, START))
                ages[shard_id] = max(ages.get(shard_id, 0.0), age_s or 0.0)
        late = {shard_id: age_s for shard_id, age_s in ages.items() if age_s > _LATE_S}
        if not late:
            return Finding.ok(f"no event of {self._subject} waits for longer than PT5M to be published")
        first = await self._first(late, cursors) if {"feed", "events"} <= set(self._readable) else []
        named = f"; the first of them are {_listed(first)}" if first else ""
        return Finding.warning(
            f"{self._subject} has events that wait for longer than PT5M to be published, the oldest for "
            f"{_duration(max(late.values()))}, in {_shards(late)}{named}",
            "Look at what the relay logged last for these shards: relay_failed names the event that fails, and "
            "the command that sets it aside; relay_feed_unavailable says why the feed cannot be read. If the "
            "relay is working through a backlog, wait.",
        )

    async def _first(self, shards: Collection[int], cursors: Mapping[int, bytes]) -> list[str]:
        """Describe the first event with a position behind the cursor of each shard, for as many as are named."""
        found = []
        for shard_id in list(shards)[:_NAMED_SHARDS]:
            cursor = cursors.get(shard_id, START)
            for entry in await run_async(self._session, self._tables.numbered(shard_id, cursor, 1)):
                document = document_of(entry, shard_id, self._feed.selection)
                found.append(
                    f"{document.fields.get('id')!r} of the partition key {document.fields.get('partitionKey')!r}"
                )
        return found

    async def _oldest_s(self, shard_id: int, cursor: bytes) -> float | None:
        """Return the age of the first position behind a cursor, or None if there is none."""
        first = await run_async(self._session, self._tables.first_position(shard_id, cursor))
        return None if first is None else max(0.0, (self._now_ms - milliseconds(first)) / 1000)


def _shards(shards: Collection[int]) -> str:
    return "shard " + _listed([str(shard_id) for shard_id in shards])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_SHARDS
    return ", ".join(names[:_NAMED_SHARDS]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))


async def waiting_since(feed: SqlFeed) -> int | None:
    """Return the earliest position behind which something waits for a consumer, as a time; None if nothing waits.

    In whole seconds since 1970. Raises ServiceError.
    """
    found = []
    with explaining(feed):
        session = await connect(feed)
        try:
            claims = await AsyncConsumer(session, feed.feed, feed.consumer).existing()
            for shard_id in range(feed.shards):
                cursor = claims[shard_id].cursor if shard_id in claims else START
                if await run_async(session, session.dialect.has_news(feed.feed, shard_id, cursor)):
                    found.append(position_time(cursor))
        finally:
            await session.close()
    return min(found, default=None)


async def scan(feed: SqlFeed, policy: OnPoison = OnPoison.SKIP) -> Scan:
    """Read what the relay has not passed, without giving positions, and validate each event as the relay does."""
    rows = 0
    refused: list[Refused] = []
    keys = Places()
    findings = []
    id_column = feed.selection.fields.column_of("id")
    try:
        session = await connect(feed)
        try:
            for shard_id in range(feed.shards):
                async for entry in _not_passed(session, feed, shard_id):
                    rows += 1
                    # A row that is gone may be what a smoke test has deleted.
                    document = document_if_taken(entry, shard_id, feed.selection)
                    if document is not None and not is_canary(entry.key.get(id_column)):
                        event = event_in(document, entry, feed.selection, 0)
                        refused += [Refused(str(shard_id), event)] if isinstance(event, Rejected) else []
                        if isinstance(event, Event):
                            keys.see(event.partition_key, str(shard_id))
        finally:
            await session.close()
    except FAILURES as error:
        findings.append(
            Finding.unknown(
                f"SQL_FEED '{feed.feed}' was not scanned to its end: {first_line(error)}",
                f"Scan again with a login that may select from {feed.feed} and from "
                f'changefeed."feed:{feed.feed}", "outbox:{feed.feed}" and "claim:{feed.feed}".',
            )
        )
    correct = f"Correct its row in {feed.feed} before the relay comes to it."
    shared = keys.findings(_TWO_SHARDS, _ONE_SHARD)
    findings = [*refused_findings(refused, "shard", policy, correct), *shared, *findings]
    if not findings:
        said = f"all events of the {rows} row(s) of SQL_FEED '{feed.feed}' that the relay has not passed"
        findings = [Finding.ok(f"{said} can become messages")]
    return Scan(findings, {"scannedRows": rows, "rejected": [each.data("shard") for each in refused]})


_TWO_SHARDS = "events of the partition key {name} are in the shards {first} and {second}: they have no order"
_ONE_SHARD = (
    "Have the services give each key one shard, as changefeed.shard_of does with the value that the relay has as "
    "the key, or name another key in [fields] of relay.toml."
)


async def _not_passed(session: AsyncSession, feed: SqlFeed, shard_id: int) -> AsyncIterator[Entry]:
    tables, id_column = tables_of(session.dialect, feed), feed.selection.fields.column_of("id")
    claim = (await AsyncConsumer(session, feed.feed, feed.consumer).existing()).get(shard_id)
    cursor = START if claim is None else claim.cursor
    # The outbox table first: an event that gets its position meanwhile is in the feed too, so none is missed.
    seen: set[Any] = set()
    after = 0
    # A page has to come within the server's limit of time, however large its rows are.
    page, max_bytes = PageSize(_PAGE_ROWS), Memory(feed.max_bytes).share
    while waiting := await run_async(session, tables.unnumbered(shard_id, after, page.rows)):
        page.read(len(waiting), size_of(each.entry for each in waiting), max_bytes)
        for each in waiting:
            seen.add((each.entry.row or each.entry.key)[id_column])
            yield each.entry
        after = waiting[-1].number
    while entries := await run_async(session, tables.numbered(shard_id, cursor, page.rows)):
        page.read(len(entries), size_of(entries), max_bytes)
        for entry in entries:
            if (entry.row or entry.key)[id_column] not in seen:
                yield entry
        cursor = entries[-1].ulid
