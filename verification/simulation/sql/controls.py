"""Safeguards and assumptions that can be taken out. Without each, universes violate a guarantee.

Those of `verification/spec/Feed.tla` and `verification/spec/Claims.tla` have the same names here.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from outbox_relay.changefeed.claims import Claim, Claims
from relay.backends.sql.shard import Shard
from relay.backends.sql.source import Ownership
from relay.core.fence import Clearance
from relay.servicebus.key_sender import KeySender
from verification.journal.checker import Wrong
from verification.journal.specification import Step
from verification.simulation.controls import Control, go_on
from verification.simulation.sql.locks import Lock
from verification.simulation.sql.server import Server
from verification.simulation.sql.statements import Statements
from verification.simulation.sql.tables import Placed, Tables, Transaction, Waiting
from verification.simulation.topic import Topic
from verification.simulation.world import EPOCH, Process

# The feed: what the migrations do.


def _place_at_commit(self: Transaction) -> None:
    """Take a writer's own number as the position."""
    self.tables.commit(self.events, ())
    for row in self.rows:
        placed = Placed(row.number.to_bytes(16), row.identifier)
        insort(self.tables.feed.setdefault(row.shard, []), placed)
        self.tables.placed([placed])


class _FreeLock(Lock):
    """A lock that everybody has."""

    def acquire(self, who: object, granted: Any, *_: Any) -> None:
        granted()

    def release(self, who: object) -> None:
        pass


_lock_of = Server.lock_of


def _no_lock_of_readers(self: Server, table: str, row: object) -> Lock:
    return _lock_of(self, table, row) if table == "aggregate" else _FreeLock(self.world.outside)


def _look_before_the_lock(self: Statements, shard: int, cursor: bytes, rows: int) -> Any:
    taken = self.tables.taken(shard, rows)
    yield self.shard_lock(shard)
    return (), taken


def _backwards(self: Tables, shard: int, rows: int) -> list[Waiting]:
    return list(reversed(self.outbox.get(shard, [])[:rows]))


def _some(self: Tables, shard: int, rows: int) -> list[Waiting]:
    """Return a snapshot that has a transaction, and not one that was committed before it began."""
    return [row for row in self.outbox.get(shard, []) if self._entropy.random() < 0.5][:rows]


def _cached(self: Tables) -> int:
    """Take numbers as each of two sessions with a block of ten numbers of the sequence."""
    self._numbers += 1
    session, number = self._entropy.randrange(2), self._numbers
    return number // 20 * 20 + 10 * session + number % 10 + 20 * (number % 20 // 10)


# Claims.


_TAKEN = "owner = ?, renewals = renewals + 1, wanted_by = null"


def _take_without_epoch(self: Claims, claim: Claim, owner: str) -> Any:
    yield from self._change(_TAKEN, (owner,), claim, as_read=True)
    return replace(claim, owner=owner, renewals=claim.renewals + 1, wanted_by=None)


# The relay.

_publish = Shard._publish


async def _done_anyhow(self: Shard, page: Any) -> None:
    """Store the cursor whatever became of the page."""
    await _publish(self, page)


@contextmanager
def _without_ownership_and_clearance() -> Iterator[None]:
    """Hold the checks off: what a process may send ends neither with its claim nor half a window later.

    Each check covers for the other.
    """
    with (
        patch.object(Clearance, "check", lambda *_: None),
        patch.object(Ownership, "holds", lambda self: not self._ended),
    ):
        yield


# The assumptions.


@contextmanager
def _clocks_that_stop() -> Iterator[None]:
    """No clock of a machine goes on while it is suspended."""
    with (
        patch.object(Process, "boottime", Process.monotonic),
        patch.object(Process, "wall", lambda self: EPOCH + self.world.now + self.skew_s - self.slept_s),
    ):
        yield


_take = Topic.take


def _take_all(self: Topic, *arguments: Any) -> None:
    self._seen.clear()
    _take(self, *arguments)


CONTROLS = {
    "ReadersNumber": Control(lambda: patch.object(Transaction, "commit", _place_at_commit), Wrong.MISSING, 2),
    "NumbersUnderLock": Control(lambda: patch.object(Server, "lock_of", _no_lock_of_readers), Wrong.DUPLICATED, 3),
    "SnapshotAfterLock": Control(
        lambda: patch.object(Statements, "_look_under_lock", _look_before_the_lock), Wrong.DUPLICATED, 3
    ),
    "SortsBySequence": Control(lambda: patch.object(Tables, "taken", _backwards), Wrong.OUT_OF_ORDER, 2),
    "PruneWaitsForConsumers": Control(
        lambda: patch.object(Tables, "read_by_all", lambda *_: None), Wrong.MISSING, 1
    ),
    "SequenceHasNoCache": Control(lambda: patch.object(Tables, "next_number", _cached), Wrong.OUT_OF_ORDER, 3),
    "SnapshotsAreConsistent": Control(lambda: patch.object(Tables, "taken", _some), Wrong.OUT_OF_ORDER, 3),
    "SendsInOrder": Control(
        lambda: patch.object(KeySender, "send_in_order", go_on), Wrong.OUT_OF_ORDER, 40, first=10
    ),
    "StoresWhatWasAccepted": Control(lambda: patch.object(Shard, "_publish", _done_anyhow), Wrong.MISSING, 2),
    "TakingRaisesEpoch": Control(lambda: patch.object(Claims, "take", _take_without_epoch), Step.CLAIM, 5),
    "SendsWhileItHolds": Control(_without_ownership_and_clearance, Wrong.DUPLICATED, 50, first=32),
    "ClocksRunAlike": Control(_clocks_that_stop, Wrong.DUPLICATED, 40, first=30),
    "TopicDetectsDuplicates": Control(lambda: patch.object(Topic, "take", _take_all), Wrong.DUPLICATED, 2),
}
