"""Finds the events of an SQL outbox that the relay would quarantine, before it reaches them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError

from changefeed import START, AsyncConsumer, ChangefeedError, Entry
from changefeed.statements import AsyncSession, run_async
from changefeed.tables import Tables
from relay.canary import is_canary
from relay.errors import first_line
from relay.events import Event, Rejected
from relay.findings import Finding, Level
from relay.settings import SqlFeed
from relay.sql.database import CONSUMER, connect
from relay.sql.rows import event_of, is_of_type

_PAGE_ROWS = 500

# Maximum number of events that are named one by one; the others are counted.
_NAMED = 20


@dataclass(frozen=True, slots=True)
class SqlScan:
    """What the scan found.

    Attributes:
        rows: How many rows of the feed and of the outbox table the relay has not passed.
        rejected: Those that would be quarantined, with their shards.
        findings: What `check` reports.
    """

    rows: int
    rejected: Sequence[tuple[int, Rejected]]
    findings: list[Finding]

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "scannedRows": self.rows,
            "rejected": [
                {
                    "id": each.id,
                    "partitionKey": each.partition_key,
                    "shard": shard_id,
                    "reason": str(each.reason),
                    "detail": each.detail,
                }
                for shard_id, each in self.rejected
            ],
        }


async def scan_sql(feed: SqlFeed, event_type: str) -> SqlScan:
    """Read what the relay has not passed, without giving positions, and validate each event as the relay does."""
    rejected: list[tuple[int, Rejected]] = []
    rows = 0
    try:
        session = await connect(feed)
        try:
            for shard_id in range(feed.shards):
                async for entry in _not_passed(session, feed, shard_id):
                    rows += 1
                    event = _judged(entry, shard_id, event_type)
                    if isinstance(event, Rejected):
                        rejected.append((shard_id, event))
        finally:
            await session.close()
    except (ChangefeedError, AzureError, OSError) as error:
        return SqlScan(rows, rejected, [*_named(rejected, feed), _unread(feed, error)])
    if not rejected:
        said = f"none of the {rows} row(s) of SQL_FEED '{feed.feed}' that the relay has not passed"
        return SqlScan(rows, [], [Finding(Level.OK, f"{said} would be quarantined")])
    return SqlScan(rows, rejected, _named(rejected, feed))


def _judged(entry: Entry, shard_id: int, event_type: str) -> Event | Rejected | None:
    """None: the relay ignores it, or it is the remains of a smoke test."""
    if not is_of_type(entry, event_type) or (entry.row is None and is_canary(entry.key.get("id"))):
        return None
    return event_of(entry, shard_id, event_type)


def _named(rejected: Sequence[tuple[int, Rejected]], feed: SqlFeed) -> list[Finding]:
    findings = [
        Finding(
            Level.ERROR,
            f"event {each.id!r} with the partition key {each.partition_key!r} in shard {shard_id} would be "
            f"quarantined: {each}",
            f"Correct its row in {feed.feed} before the relay comes to it, or release its record afterwards.",
        )
        for shard_id, each in rejected[:_NAMED]
    ]
    if len(rejected) > _NAMED:
        findings.append(
            Finding(Level.ERROR, f"{len(rejected) - _NAMED} more event(s) would be quarantined", "Use --json.")
        )
    return findings


def _unread(feed: SqlFeed, error: Exception) -> Finding:
    return Finding(
        Level.UNKNOWN,
        f"SQL_FEED '{feed.feed}' was not scanned to its end: {first_line(error)}",
        f'Scan again with a login that may select from {feed.feed} and from changefeed."feed:{feed.feed}", '
        f'"outbox:{feed.feed}" and "claim:{feed.feed}".',
    )


async def _not_passed(session: AsyncSession, feed: SqlFeed, shard_id: int) -> AsyncIterator[Entry]:
    tables = Tables(session.dialect, feed.feed)
    claim = (await AsyncConsumer(session, feed.feed, CONSUMER).existing()).get(shard_id)
    cursor = START if claim is None else claim.cursor
    # The outbox table first: what gets its position meanwhile is in the feed as well, and nothing is missed.
    seen: set[Any] = set()
    after = 0
    while waiting := await run_async(session, tables.unnumbered(shard_id, after, _PAGE_ROWS)):
        for each in waiting:
            seen.add(_id(each.entry))
            yield each.entry
        after = waiting[-1].number
    while entries := await run_async(session, tables.numbered(shard_id, cursor, _PAGE_ROWS)):
        for entry in entries:
            if _id(entry) not in seen:
                yield entry
        cursor = entries[-1].ulid


def _id(entry: Entry) -> Any:
    return (entry.row or entry.key)["id"]
