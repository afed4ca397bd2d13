"""Interleavings of writers and readers, for any way of reading. `history.faults` judges what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from outbox_relay.changefeed import Session
from tests.changefeed.backends import Backend
from tests.changefeed.journal import Journal, Observer
from tests.support.waiting import look_again_blocking
from tests.support.watchdog import WATCHDOG_S

NewObserver = Callable[[Session, str], Observer]
Interleaving = Callable[[Backend, Journal, NewObserver], None]


def two_readers_at_the_head(backend: Backend, journal: Journal, observer: NewObserver) -> None:
    """The second reader begins while the first has numbered an event, and has not committed."""
    writer, sessions = backend.writer(), [backend.session(), backend.session()]
    readers = [observer(sessions[0], "first"), observer(sessions[1], "second")]
    journal.write(writer, 0, "before")
    for reader in readers:
        reader.drain()
    journal.write(writer, 0, "a")

    with ThreadPoolExecutor(2) as pool:
        reads = []
        with backend.outbox_held():
            for reader, session in zip(readers, sessions, strict=True):
                session_id = backend.id_of(session)
                reads.append(pool.submit(reader.read))
                until_blocked(backend, session_id, reads[-1])
        for read in reads:
            read.result(WATCHDOG_S)
    _finish(backend, journal, observer, *readers)


def long_transaction(backend: Backend, journal: Journal, observer: NewObserver) -> None:
    """A transaction writes first and commits last; the reader has read everything else."""
    slow, writer, reader = backend.writer(), backend.writer(), observer(backend.session(), "first")
    unit = journal.begin(slow)
    unit.append(0, "slow")
    for _ in range(3):
        journal.write(writer, 0, "a", "b")
        reader.drain()
    unit.append(0, "slow")
    unit.commit()
    _finish(backend, journal, observer, reader)


def three_readers(backend: Backend, journal: Journal, observer: NewObserver) -> None:
    """Three readers come while the lock of the first event is held, as by a reader that is then killed."""
    writer, sessions = backend.writer(), [backend.session() for _ in range(3)]
    readers = [observer(session, f"reader {number}") for number, session in enumerate(sessions, 1)]
    journal.write(writer, 0, "a")

    with ThreadPoolExecutor(len(readers)) as pool:
        reads = []
        with backend.outbox_held():
            journal.write(writer, 0, "a")
            journal.write(writer, 0, "b")
            for reader, session in zip(readers, sessions, strict=True):
                session_id = backend.id_of(session)
                reads.append(pool.submit(reader.read, page_size=1))
                until_blocked(backend, session_id, reads[-1])
        for read in reads:
            read.result(WATCHDOG_S)
    _finish(backend, journal, observer, *readers)


def commit_during_a_read(backend: Backend, journal: Journal, observer: NewObserver) -> None:
    """A transaction that wrote first commits while a reader waits for the shard's lock."""
    slow, writer, session = backend.writer(), backend.writer(), backend.session()
    reader, session_id = observer(session, "first"), backend.id_of(session)
    journal.write(writer, 0, "before")
    reader.drain()
    unit = journal.begin(slow)
    unit.append(0, "slow")
    journal.write(writer, 0, "a")

    with ThreadPoolExecutor(1) as pool:
        with backend.shard_held(0):
            read = pool.submit(reader.read)
            until_blocked(backend, session_id, read)
            unit.commit()
        read.result(WATCHDOG_S)
    _finish(backend, journal, observer, reader)


def taking_turns(backend: Backend, journal: Journal, observer: NewObserver) -> None:
    """Two sessions commit in turn, and the reader comes afterwards."""
    one, other = backend.writer(), backend.writer()
    for _ in range(3):
        journal.write(one, 0, "a")
        journal.write(other, 0, "b")
    _finish(backend, journal, observer)


def until_blocked(backend: Backend, session_id: int, read: Future[Any]) -> None:
    """Wait until a read waits for a lock, or has ended."""
    ends = time.monotonic() + WATCHDOG_S
    while not read.done() and not backend.blocked(session_id):
        assert time.monotonic() < ends, "the reader neither ends nor waits for a lock"
        look_again_blocking()


def _finish(backend: Backend, journal: Journal, observer: NewObserver, *readers: Observer) -> None:
    """The readers go on to the head, and a last one reads from the beginning."""
    last = observer(backend.session(), "last")
    for reader in (*readers, last):
        reader.drain()
    journal.observed(*readers, last)
