"""The pauses of a shard of an SQL outbox and of its worker after a failure, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from outbox_relay.changefeed import START, Claim, DatabaseError, Stored
from outbox_relay.changefeed.statements import AsyncSession
from relay.backends.sql.database import Database
from relay.backends.sql.memory import Memory
from relay.backends.sql.shard import Shard
from relay.backends.sql.source import Ownership, now
from relay.backends.sql.worker import Worker
from tests.support import virtual_time
from tests.support.in_memory import InMemoryPublisher
from tests.support.sql_outbox import relay_of, sql_settings

_CLAIM_S = 10.0


def attempts(failure: Exception, then: Callable[[Shard, int], None]) -> tuple[list[float], float]:
    """Run a shard whose database cannot be reached, in virtual time.

    Args:
        failure: The error of each connection.
        then: Called with the shard and the number of attempts, at each attempt.

    Returns:
        The seconds of the attempts, and of the shard's end.
    """

    async def work() -> tuple[list[float], float]:
        clock = asyncio.get_running_loop().time
        seconds: list[float] = []

        async def connect() -> AsyncSession:
            seconds.append(clock())
            then(shard, len(seconds))
            raise failure

        settings = sql_settings("postgresql://nowhere/outbox", claim_s=_CLAIM_S)
        shard = Shard(
            relay_of(Database(settings), InMemoryPublisher()),
            settings,
            connect,
            Claim(0, START, "this test", 1, 1, None),
            Ownership(1000.0, now()),
            Memory(2**20),
            Stored(),
            page_size=100,
            poll_delay_s=0.1,
        )
        await shard.run()
        return seconds, clock()

    return virtual_time.run(work())


def stop_at(last: int) -> Callable[[Shard, int], None]:
    def then(shard: Shard, attempt: int) -> None:
        if attempt == last:
            shard.stop()

    return then


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (
            DatabaseError("away", lost=True),
            "relay_feed_unavailable shard=0: DatabaseError: away",
        ),
        (KeyError("Jane"), "relay_defect shard=0: KeyError"),
    ],
    ids=["the database", "a defect"],
)
def test_the_pauses_double_up_to_half_of_a_claims_time(
    caplog: pytest.LogCaptureFixture, failure: Exception, says: str
) -> None:
    seconds, ended = attempts(failure, stop_at(7))

    assert seconds == [0, 1, 3, 7, 12, 17, 22]
    assert ended == 22
    assert caplog.text.count(says) == 7
    assert caplog.text.count("It is tried again.") == 7
    assert "Jane" not in caplog.text


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (DatabaseError("away", lost=True), "relay_claims_unavailable: DatabaseError: away They are tried again."),
        (KeyError("Jane"), "relay_defect: KeyError"),
    ],
    ids=["the database", "a defect"],
)
def test_a_worker_that_cannot_read_the_claims_looks_again_and_is_not_ready(
    caplog: pytest.LogCaptureFixture, failure: Exception, says: str
) -> None:
    async def work() -> list[float]:
        clock = asyncio.get_running_loop().time
        seconds: list[float] = []

        async def connect() -> AsyncSession:
            seconds.append(clock())
            raise failure

        settings = sql_settings("postgresql://nowhere/outbox", claim_s=_CLAIM_S)
        relay = relay_of(Database(settings), InMemoryPublisher())
        worker, stop = Worker(relay, settings, connect, page_size=100, poll_delay_s=0.1), asyncio.Event()
        asyncio.get_running_loop().call_later(9.0, stop.set)
        await worker.run(stop)
        assert (worker.health.stalled(), worker.health.unready()) == (None, "the claims have not been read yet")
        assert clock() == 9
        return seconds

    assert virtual_time.run(work()) == [0, 2.5, 5, 7.5]
    assert caplog.text.count(says) == 4
    assert "Jane" not in caplog.text


def test_a_shard_that_is_stopped_while_it_waits_ends_at_once() -> None:
    def stop_later(shard: Shard, attempt: int) -> None:
        if attempt == 4:
            asyncio.get_running_loop().call_later(2.25, shard.stop)

    seconds, ended = attempts(DatabaseError("away"), stop_later)

    assert (seconds, ended) == ([0, 1, 3, 7], 9.25)


def test_a_claim_that_ends_while_its_shard_waits_ends_the_shard_within_a_second() -> None:
    def end_later(shard: Shard, attempt: int) -> None:
        if attempt == 4:
            asyncio.get_running_loop().call_later(2.25, shard.ownership.end)

    seconds, ended = attempts(DatabaseError("away"), end_later)

    assert seconds == [0, 1, 3, 7]
    assert 9.25 <= ended <= 10.25
