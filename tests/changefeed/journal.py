"""Records what writers and readers do, for `history.faults`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from outbox_relay.changefeed import START
from tests.changefeed.backends import Writer
from tests.changefeed.history import Event, Fault, Observation, Seen, Transaction, faults


class Read(NamedTuple):
    """A page: the events, and where to read on."""

    seen: Sequence[Seen]
    cursor: bytes


Reading = Callable[[int, bytes, int], Read]
"""Reads one page: shard, cursor, page size."""

_PAGES = 10_000


class Unit:
    """A transaction that continues."""

    def __init__(self, journal: Journal, writer: Writer) -> None:
        self._journal = journal
        self._writer = writer
        self._events: list[Event] = []
        self._began = journal.tick()
        writer.begin()

    def append(self, shard: int, aggregate: str, time_hint: datetime | str | None = None) -> Event:
        """Write an event."""
        event = self._writer.append(shard, aggregate, self._journal.tick(), time_hint=time_hint)
        self._events.append(event)
        return event

    def commit(self) -> None:
        """Commit, and record it."""
        self._writer.commit()
        self._record("committed", self._journal.tick())

    def rollback(self) -> None:
        """Roll back, and record it."""
        self._writer.rollback()
        self.lost()

    def lost(self) -> None:
        """Record that its session ended before a commit."""
        self._record("rolled back", None)

    def _record(self, outcome: Any, ended: int | None) -> None:
        self._journal.transactions.append(Transaction(self._began, ended, outcome, self._events))


class Journal:
    """The actions of all writers and readers of a test. Threads may share it."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.observations: list[Observation] = []
        self._ticks = itertools.count(1)

    def tick(self) -> int:
        """The time of the test's clock; each is later than the one before."""
        return next(self._ticks)

    def begin(self, writer: Writer) -> Unit:
        """Begin a transaction."""
        return Unit(self, writer)

    @contextmanager
    def committed(self, writer: Writer) -> Iterator[Unit]:
        """A transaction that is committed at the end of the block."""
        unit = self.begin(writer)
        yield unit
        unit.commit()

    def write(self, writer: Writer, shard: int, *aggregates: str) -> list[Event]:
        """One committed transaction with an event of each of these aggregates."""
        with self.committed(writer) as unit:
            return [unit.append(shard, aggregate) for aggregate in aggregates]

    def observed(self, *observers: Observer, complete: bool = True) -> None:
        """Record what readers have seen."""
        self.observations += [Observation(one.name, one.copy(), complete) for one in observers]

    def faults(self) -> list[Fault]:
        """The errors found."""
        return faults(self.transactions, self.observations)


class Observer:
    """A reader that remembers what it saw, and its cursor in each shard."""

    def __init__(self, name: str, reading: Reading) -> None:
        self.name = name
        self.reading = reading
        self._seen: dict[int, list[Seen]] = {}
        self._cursors: dict[int, bytes] = {}

    def read(self, shard: int = 0, page_size: int = 100) -> list[Event]:
        """Read one page; returns its events."""
        page = self.reading(shard, self.cursor(shard), page_size)
        self._seen.setdefault(shard, []).extend(page.seen)
        self._cursors[shard] = page.cursor
        return [entry.event for entry in page.seen]

    def drain(self, *shards: int, page_size: int = 100) -> list[Event]:
        """Read these shards (0 without any) to the head, which is an empty page; returns the events."""
        found: list[Event] = []
        for shard in shards or (0,):
            for _ in range(_PAGES):
                page = self.read(shard, page_size)
                found += page
                if not page:
                    break
            else:
                raise AssertionError(f"the shard {shard} has no head")
        return found

    def cursor(self, shard: int = 0) -> bytes:
        """Where it reads on."""
        return self._cursors.get(shard, START)

    def copy(self) -> Mapping[int, Sequence[Seen]]:
        """The events seen so far."""
        return {shard: list(entries) for shard, entries in self._seen.items()}
