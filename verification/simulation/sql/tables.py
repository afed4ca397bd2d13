"""The tables of a feed, as committed transactions have left them, and what its functions compute of them.

It does what `outbox_relay/changefeed/postgresql/migrations` do. Each method is one statement of theirs: it sees
what is committed when it is called, as a statement under READ COMMITTED does, because writers and readers change
the tables at their commit only.
"""

from __future__ import annotations

import random
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_relay.changefeed.errors import ArgumentError, CursorError, CursorPrunedError
from outbox_relay.changefeed.ulid import START, milliseconds
from relay.core.documents import StoredDocument

_PAGE = 1000
_COUNTS = 1 << 40
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A row of the outbox: committed, and without a position. Rows sort by the number that the sequence gave."""

    number: int
    shard: int
    hint_ms: int
    identifier: str


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """A row of the feed."""

    ulid: bytes
    identifier: str


@dataclass(slots=True)
class ClaimRow:
    """A row of the claims."""

    consumer: str
    shard_id: int
    last_ulid: bytes = START
    stored_at: float | None = None
    owner: str | None = None
    epoch: int = 0
    renewals: int = 0
    wanted_by: str | None = None


class Tables:
    """The feed of one event table.

    Attributes:
        events: The event table: rows by their id.
        outbox: What is committed and has no position yet, by shard.
        feed: What has one, by shard, in order.
        state: The last position given, by shard.
        claims: The claims by consumer and shard.
        low_water: The last position deleted, by shard.
        keep_h: How many hours positions are kept; None for ever.
        placed: Called with each row that gets a position.
    """

    def __init__(self, entropy: random.Random, wall: Callable[[], float]) -> None:
        """`wall` is the server's clock."""
        self._entropy = entropy
        self._wall = wall
        self._numbers = 0
        self.events: dict[str, Mapping[str, Any]] = {}
        self.outbox: dict[int, list[Waiting]] = {}
        self.feed: dict[int, list[Placed]] = {}
        self.state: dict[int, bytes] = {}
        self.claims: dict[tuple[str, int], ClaimRow] = {}
        self.low_water: dict[int, bytes] = {}
        self.keep_h: float | None = None
        self.placed: Callable[[Sequence[Placed]], None] = lambda _: None

    # What writers do.

    def next_number(self) -> int:
        """Return the next number of the outbox's sequence, which a rollback does not return."""
        self._numbers += 1
        return self._numbers

    def commit(self, events: Iterable[StoredDocument], rows: Sequence[Waiting]) -> None:
        """Make the rows that a writer's transaction has inserted visible, all together."""
        for event in events:
            self.events[event["id"]] = event
        for row in rows:
            insort(self.outbox.setdefault(row.shard, []), row)

    def now_ms(self) -> int:
        """Return the server's time in milliseconds since 1970."""
        return int(self._wall() * 1000)

    # What readers do.

    def page(self, shard: int, cursor: bytes, rows: int) -> list[Placed]:
        """Return the rows of the feed behind a cursor."""
        placed = self.feed.get(shard, [])
        first = bisect_right(placed, cursor, key=lambda each: each.ulid)
        return placed[first : first + rows]

    def check_read(self, rows: int) -> None:
        """Check the page size. Raises ArgumentError."""
        if not 1 <= rows <= _PAGE:
            raise ArgumentError(f"pagesize is {rows}: set a pagesize from 1 to {_PAGE}")

    def is_head(self, shard: int, cursor: bytes) -> bool:
        """Return True if nothing is new behind a cursor, by one snapshot. Raises CursorError."""
        last = self._last_of_feed(shard)
        self._check_cursor(shard, cursor, max(self.state.get(shard, START), last))
        self.check_low_water(shard, cursor)
        return not self.outbox.get(shard) and last <= cursor

    def check_low_water(self, shard: int, cursor: bytes) -> None:
        """Raise CursorPrunedError where retention has deleted positions behind the cursor."""
        if cursor != START and cursor < self.low_water.get(shard, START):
            raise CursorPrunedError(f"the cursor of shard {shard} is behind the low-water mark")

    def has_news(self, shard: int, cursor: bytes) -> bool:
        """Return True if a read may find something, or would refuse the cursor."""
        last = self._last_of_feed(shard)
        return (
            last > cursor
            or bool(self.outbox.get(shard))
            or cursor > max(last, self.state.get(shard, START))
            or (cursor != START and self.low_water.get(shard, START) > cursor)
        )

    def _last_of_feed(self, shard: int) -> bytes:
        placed = self.feed.get(shard)
        return placed[-1].ulid if placed else START

    def _check_cursor(self, shard: int, cursor: bytes, last_given: bytes) -> None:
        if cursor > last_given:
            raise CursorError(f"the cursor is ahead of the last position given in the shard {shard}")

    # What the reader does that holds the shard's lock.

    def taken(self, shard: int, rows: int) -> list[Waiting]:
        """Return the rows that are visible now, in the order of the sequence."""
        return self.outbox.get(shard, [])[:rows]

    def numbered(self, shard: int, taken: Sequence[Waiting], rows: int) -> list[Placed]:
        """Return positions for rows: behind all that were given, and no earlier than the rows' own times."""
        last = max(self.state.get(shard, START), self._last_of_feed(shard))
        last_ms, random_bits, counter = milliseconds(last), int.from_bytes(last[6:11]), int.from_bytes(last[11:])
        if counter + rows >= _COUNTS:
            last_ms, random_bits, counter = last_ms + 1, self._bits(40), self._bits(39)
        ms, now_ms, placed = last_ms, self.now_ms(), []
        for row in taken:
            later_ms = max(ms, min(row.hint_ms, now_ms))
            if later_ms > ms:
                ms, random_bits, counter = later_ms, self._bits(40), self._bits(39)
            counter += 1
            ulid = ms.to_bytes(6) + random_bits.to_bytes(5) + counter.to_bytes(5)
            placed.append(Placed(ulid, row.identifier))
        return placed

    def place(self, shard: int, taken: Sequence[Waiting], placed: Sequence[Placed]) -> None:
        """Commit the reader's transaction: its rows move from the outbox to the feed."""
        gone = set(taken)
        self.outbox[shard] = [row for row in self.outbox.get(shard, []) if row not in gone]
        for row in placed:
            insort(self.feed.setdefault(shard, []), row)
        if placed:
            self.state[shard] = placed[-1].ulid
            self.placed(placed)

    def _bits(self, bits: int) -> int:
        return self._entropy.getrandbits(bits)

    def set_clock_back(self, by_ms: int) -> None:
        """Leave what a clock that is set back leaves: the last position of each shard is ahead of the time."""
        ahead = (self.now_ms() + by_ms).to_bytes(6) + self._bits(40).to_bytes(5) + self._bits(39).to_bytes(5)
        for shard in self.feed:
            self.state[shard] = max(self.state.get(shard, START), ahead)

    # Retention.

    def retain(self) -> int:
        """Delete what is older than the feed keeps, and what every consumer has read; returns how many rows."""
        if self.keep_h is None:
            return 0
        before = max(self.now_ms() - int(self.keep_h * _HOUR_MS), 0).to_bytes(6) + bytes(10)
        return sum(self._prune(shard, before) for shard in list(self.feed))

    def _prune(self, shard: int, before: bytes) -> int:
        low_water = self.low_water.get(shard, START)
        read = self.read_by_all(shard)
        due = [
            row for row in self.feed[shard] if low_water < row.ulid < before and (read is None or row.ulid <= read)
        ][:_PAGE]
        if not due:
            return 0
        self.feed[shard] = [row for row in self.feed[shard] if row not in due]
        self.low_water[shard] = due[-1].ulid
        self.state[shard] = max(self.state.get(shard, START), due[-1].ulid)
        return len(due)

    def read_by_all(self, shard: int) -> bytes | None:
        """Return the position that every consumer has read in a shard, or None if there are no consumers."""
        consumers = {consumer for consumer, _ in self.claims}
        cursors = [
            self.claims[consumer, shard].last_ulid if (consumer, shard) in self.claims else START
            for consumer in consumers
        ]
        return min(cursors, default=None)


@dataclass(slots=True)
class Transaction:
    """A writer's transaction: its rows have their numbers, and nobody sees them before it has committed."""

    tables: Tables
    events: list[StoredDocument] = field(default_factory=list)
    rows: list[Waiting] = field(default_factory=list)

    def insert(self, event: StoredDocument, shard: int, hint_ms: int | None = None) -> None:
        """Insert an event and its row of the outbox."""
        self.events.append(event)
        hint_ms = self.tables.now_ms() if hint_ms is None else hint_ms
        self.rows.append(Waiting(self.tables.next_number(), shard, hint_ms, event["id"]))

    def commit(self) -> None:
        """Make all of it visible."""
        self.tables.commit(self.events, self.rows)
