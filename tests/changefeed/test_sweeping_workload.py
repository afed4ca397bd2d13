"""Writers with slow commits and rollbacks, and sweepers that are killed: nothing is lost or reordered."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from outbox_relay import changefeed
from tests.changefeed.numbered import FEED, Service, append, service, until
from tests.support.waiting import elapse_blocking

__all__ = ["service"]

_WRITERS = 6
_TRANSACTIONS = 60
_SHARDS = 2
_SEED = 13


@dataclass(frozen=True, slots=True)
class Transaction:
    """One writer's actions, with the times at which its transaction began and was known to be committed."""

    shard: int
    change_ids: list[int]
    began: float
    committed: float


def write(service: Service, number: int) -> list[Transaction]:
    """Transactions of one to three changes, one in ten of them slow, one in ten rolled back."""
    chance = random.Random(_SEED * 100 + number)
    committed = []
    with service.connect() as connection:
        for _ in range(_TRANSACTIONS):
            began = time.monotonic()
            shard = chance.randrange(_SHARDS)
            change_ids = [append(connection, f"writer {number}", shard) for _ in range(chance.randint(1, 3))]
            if chance.random() < 0.1:
                elapse_blocking(0.05)
            if chance.random() < 0.1:
                connection.rollback()
                continue
            connection.commit()
            committed.append(Transaction(shard, change_ids, began, time.monotonic()))
    return committed


def follow(service: Service, shard: int, written: threading.Event) -> list[int]:
    """The change_ids in the order in which a reader with a cursor gets them."""
    reader, cursor, read = changefeed.Changes(service.open_session()), 0, []
    while True:
        last_look = written.is_set()
        page = reader.read(FEED, shard, cursor, 7)
        read += [change.change_id for change in page.changes]
        cursor = page.cursor
        if not page.changes:
            if last_look:
                return read
            reader.wait(FEED, shard, cursor, 0.2)


def keep_sweeping(service: Service, ended: threading.Event) -> None:
    """A sweeper that opens another session when its own was killed."""
    while not ended.is_set():
        session = service.open_session()
        try:
            while not ended.is_set():
                changefeed.sweep_loop(session, wait_s=20, duration_s=20, stop=ended)
        except changefeed.DatabaseError as error:
            if not error.lost:
                raise


def kill_sweepers(service: Service, written: threading.Event) -> int:
    """Kill the active sweeper, until the writers are done; returns the number of kills."""
    killed = 0
    while not written.is_set():
        until(lambda: service.sweeper() or written.is_set(), "a sweeper")
        pid = service.sweeper()
        if pid is not None:
            service.kill(pid)
            killed += 1
        written.wait(0.1)
    return killed


def test_nothing_is_lost_or_reordered_while_sweepers_are_killed(service: Service) -> None:
    written, ended = threading.Event(), threading.Event()
    with ThreadPoolExecutor(_WRITERS + _SHARDS * 2 + 3) as threads:
        sweepers = [threads.submit(keep_sweeping, service, ended) for _ in range(2)]
        killer = threads.submit(kill_sweepers, service, written)
        writers: list[Future[list[Transaction]]] = [
            threads.submit(write, service, number) for number in range(_WRITERS)
        ]
        numbered = threading.Event()
        readers = [threads.submit(follow, service, number % _SHARDS, numbered) for number in range(_SHARDS * 2)]
        transactions = [transaction for writer in writers for transaction in writer.result(50)]
        written.set()
        killed = killer.result(20)
        waiting = "select 1 from changefeed.change where change_sequence_number is null"
        until(lambda: not service.rows(waiting), "the last number")
        numbered.set()
        read = [reader.result(30) for reader in readers]
        ended.set()
        for sweeper in sweepers:
            sweeper.result(30)

    assert killed >= 2
    assert len(transactions) > _WRITERS * _TRANSACTIONS / 2
    for shard in range(_SHARDS):
        mine = [transaction for transaction in transactions if transaction.shard == shard]
        order = read[shard]
        assert read[shard + _SHARDS] == order
        assert sorted(order) == sorted(change_id for one in mine for change_id in one.change_ids)
        assert service.numbers(shard) == [(change_id, number) for number, change_id in enumerate(order, 1)]
        _check_real_time(mine, {change_id: place for place, change_id in enumerate(order)})


def _check_real_time(transactions: list[Transaction], place: dict[int, int]) -> None:
    """All changes of a transaction come before those of every one that began after it was committed."""
    by_commit = sorted(transactions, key=lambda one: one.committed)
    highest, done = -1, 0
    for one in sorted(transactions, key=lambda one: one.began):
        while done < len(by_commit) and by_commit[done].committed < one.began:
            highest = max(highest, *(place[change_id] for change_id in by_commit[done].change_ids))
            done += 1
        assert min(place[change_id] for change_id in one.change_ids) > highest
        assert sorted(one.change_ids, key=place.__getitem__) == one.change_ids


def test_the_check_of_real_time_notices_a_reordering() -> None:
    first, second = Transaction(0, [1], 0.0, 1.0), Transaction(0, [2], 2.0, 3.0)

    _check_real_time([first, second], {1: 0, 2: 1})

    with pytest.raises(AssertionError):
        _check_real_time([first, second], {2: 0, 1: 1})
