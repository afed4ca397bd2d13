"""Services that write events: transactions that last, commit in any order, and are rolled back or killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outbox_relay.changefeed.writing import shard_of
from relay.core import jsontext
from verification.journal import entries
from verification.journal.entries import digest_of
from verification.simulation.sql.services import Services
from verification.simulation.sql.tables import Transaction
from verification.simulation.topic import CONDITIONS

TABLE = "outbox.domain_event"
EVENT_TYPE = "domainEvent"
KEYS = 12

# Seconds between an insert and its commit: how often each bound is chosen, in relation to the others.
_LATE_S = {0.01: 6, 2.0: 3, 30.0: 1}

# Number of characters that an event may have beside the others: two of the largest are no batch.
_PADDING = (0, 100, 2500)

_ROLLED_BACK, _OF_ANOTHER_TYPE, _REFUSED, _NO_OBJECT = 0.1, 0.03, 0.02, 0.01


@dataclass(frozen=True, slots=True)
class _Writing:
    """A transaction: what it inserts, whose locks it needs for that, and how it ends after how many seconds."""

    rows: Sequence[dict[str, Any]]
    keys: Sequence[str]
    late_s: float = 0.0
    ends_well: bool = True


class Writers:
    """Writes events; whoever writes to a key holds its lock until the transaction ends, as services do.

    Attributes:
        open: Number of transactions that have begun and not ended.
    """

    def __init__(self, services: Services, shards: int) -> None:
        self.open = 0
        self._services = services
        self._world = services.world
        self._shards = shards

    def plan(self, events: int, span_s: float) -> None:
        """Begin transactions within a span of time, with `events` events in all."""
        entropy = self._world.entropy
        left, number = events, 0
        while left > 0:
            size = min(left, entropy.choice((1, 1, 1, 2, 3, 4)))
            left -= size
            number += 1
            self._world.outside.at(entropy.uniform(0, span_s), self._begin, number, size)

    def write(self, number: int) -> None:
        """Commit a sound event."""
        key = f"key-{number % KEYS}"
        self.open += 1
        self._lock(_Writing([_row(key, f"t{number}-0", {"action": "Changed"})], [key]))

    def _begin(self, number: int, size: int) -> None:
        entropy = self._world.entropy
        keys = sorted(entropy.sample(range(KEYS), entropy.choice((1, 1, 1, 2))))
        rows = [self._row(f"key-{entropy.choice(keys)}", f"e{number}-{each}") for each in range(size)]
        (late_s,) = entropy.choices(list(_LATE_S), list(_LATE_S.values()))
        self.open += 1
        self._lock(
            _Writing(
                rows,
                [f"key-{key}" for key in keys],
                late_s=entropy.uniform(0, late_s),
                ends_well=entropy.random() >= _ROLLED_BACK,
            )
        )

    def _row(self, key: str, identifier: str) -> dict[str, Any]:
        entropy = self._world.entropy
        data: Any = {"action": "Changed", "padding": entropy.choice(_PADDING) * "."}
        if entropy.random() < _REFUSED:
            data["refused"] = entropy.choice(CONDITIONS)
        elif entropy.random() < _NO_OBJECT:
            data = "no object"
        row = _row(key, identifier, data)
        if entropy.random() < _OF_ANOTHER_TYPE:
            row["type"] = "something else"
        return row

    def _lock(self, writing: _Writing, got: int = 0) -> None:
        """Take the locks of the keys one after another, in their order, so that no two wait for each other."""
        if got < len(writing.keys):
            lock = self._services.server.lock_of("aggregate", writing.keys[got])
            lock.acquire(writing, lambda: self._lock(writing, got + 1))
            return
        transaction = Transaction(self._services.server.tables)
        for row in writing.rows:
            transaction.insert(row, shard_of(row["partition_key"], self._shards))
        self._world.outside.after(writing.late_s, self._end, writing, transaction)

    def _end(self, writing: _Writing, transaction: Transaction) -> None:
        if writing.ends_well:
            self._services.server.commit(transaction)
            self._note(writing.rows)
        self.open -= 1
        for key in writing.keys:
            self._services.server.lock_of("aggregate", key).release(writing)

    def _note(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            if row["type"] != EVENT_TYPE:
                continue
            data = json.loads(row["data"])
            self._services.commit(
                entries.Committed(
                    at=self._services.at,
                    by="writer",
                    key=row["partition_key"],
                    id=row["id"],
                    digest=digest_of(row["data"], "Changed"),
                    place=str(shard_of(row["partition_key"], self._shards)),
                    sound=isinstance(data, dict) and "refused" not in data,
                )
            )


def _row(key: str, identifier: str, data: Any) -> dict[str, Any]:
    text = jsontext.encode(data).decode()
    return {"id": identifier, "partition_key": key, "type": EVENT_TYPE, "data": text}
