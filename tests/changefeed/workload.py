"""Concurrent writers and readers: slow commits, rollbacks, a long transaction, and sessions that are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from outbox_relay.changefeed import DatabaseError, Session
from tests.changefeed.backends import Backend
from tests.changefeed.interleavings import NewObserver
from tests.changefeed.journal import Journal, Observer
from tests.support.watchdog import WATCHDOG_S

# After how many events a reader's view is recorded on the way.
_RECORD_EVERY = 40


@dataclass(frozen=True, slots=True)
class Workload:
    """How much is done.

    Attributes:
        seed: Of all random choices.
        writers: Threads that write.
        transactions: Of each of them.
        readers: Threads that read all shards from the beginning to the end.
        shards: Numbers 0 to shards - 1.
        aggregates: All writers change the same ones.
        kills: How many readers' sessions are ended.
    """

    seed: int
    writers: int = 6
    transactions: int = 40
    readers: int = 3
    shards: int = 2
    aggregates: int = 8
    kills: int = 6

    def run(self, backend: Backend, journal: Journal, observer: NewObserver) -> None:
        """Do it all, and record it. Raises what a writer or reader raised, or TimeoutError."""
        course = _Course(self, backend, journal, observer)
        # Its transaction stays open for the whole time, and commits last.
        slow = journal.begin(backend.writer())
        slow.append(0, "slow")
        killed = backend.writer()
        unfinished = journal.begin(killed)
        unfinished.append(0, "killed")
        with ThreadPoolExecutor(self.writers + self.readers + 1) as pool:
            writers = [pool.submit(course.write, number) for number in range(self.writers)]
            others = [pool.submit(course.read, number) for number in range(self.readers)]
            others.append(pool.submit(course.kill))
            try:
                _finished(writers)
                backend.kill(killed.id)
                unfinished.lost()
                slow.append(0, "slow")
                slow.commit()
            finally:
                course.written.set()
            _finished(others)
        last = observer(backend.session(), "last")
        last.drain(*range(self.shards))
        journal.observed(last)


@dataclass(slots=True)
class _Course:
    """Activity during a workload."""

    plan: Workload
    backend: Backend
    journal: Journal
    observer: NewObserver
    written: threading.Event = field(default_factory=threading.Event)
    _ids: dict[int, int] = field(default_factory=dict)

    def write(self, number: int) -> None:
        """Write the transactions of one writer."""
        choice = random.Random(f"{self.plan.seed} writer {number}")
        writer = self.backend.writer()
        for _ in range(self.plan.transactions):
            chosen = sorted(choice.sample(range(self.plan.aggregates), choice.choice((1, 1, 1, 2, 3))))
            unit = self.journal.begin(writer)
            for aggregate in chosen:
                for _ in range(choice.choice((1, 1, 2))):
                    unit.append(aggregate % self.plan.shards, f"aggregate {aggregate}")
            if choice.random() < 0.15:
                # A slow commit: the time passes while the transaction is open.
                self.written.wait(choice.uniform(0.002, 0.03))
            if choice.random() < 0.08:
                unit.rollback()
            else:
                unit.commit()

    def read(self, number: int) -> None:
        """Read all shards at the head, until everything is written and read."""
        choice = random.Random(f"{self.plan.seed} reader {number}")
        name = f"reader {number}"
        one = self._observer(number, name)
        unrecorded = 0
        while True:
            # To the head, once more after the last commit.
            ends = self.written.is_set()
            for shard in range(self.plan.shards):
                try:
                    while page := one.read(shard, choice.choice((1, 3, 20, 100))):
                        unrecorded += len(page)
                        if unrecorded >= _RECORD_EVERY:
                            self.journal.observed(one, complete=False)
                            unrecorded = 0
                except DatabaseError as error:
                    if not error.lost:
                        raise
                    one.reading = self._observer(number, name).reading
                    ends = False
            if ends:
                break
            self.written.wait(choice.uniform(0, 0.004))
        self.journal.observed(one)

    def kill(self) -> None:
        """End sessions of readers, one after the other, while the writers write."""
        choice = random.Random(f"{self.plan.seed} kills")
        for _ in range(self.plan.kills):
            self.written.wait(choice.uniform(0.02, 0.1))
            # On a busy machine no reader may have a session yet.
            if readers := list(self._ids.values()):
                self.backend.kill(choice.choice(readers))

    def _observer(self, number: int, name: str) -> Observer:
        session: Session = self.backend.session()
        self._ids[number] = self.backend.id_of(session)
        return self.observer(session, name)


def _finished(futures: Sequence[Future[None]]) -> None:
    done, left = wait(futures, timeout=WATCHDOG_S, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
    if left:
        raise TimeoutError(f"{len(left)} of {len(futures)} have not ended in {WATCHDOG_S} s")
