"""Positions that the retention policy allows are deleted while the worker reads, and no failure ends that."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from outbox_relay.changefeed import DatabaseError
from outbox_relay.changefeed.statements import AsyncSession
from relay.backends.sql import worker as workers
from relay.backends.sql.database import BoundedSession
from tests.support import virtual_time
from tests.support.watchdog import WATCHDOG_S


async def test_it_goes_on_until_nothing_is_due_and_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = iter([1000, 7, 0, 3, 0])
    done = asyncio.Event()

    class Feed:
        def __init__(self, session: BoundedSession, table: str) -> None:
            assert table == "outbox.domain_event"

        async def carry_out_retention(self) -> int:
            found = next(deleted, None)
            if found is None:
                done.set()
            return found or 0

    monkeypatch.setattr(workers, "AsyncFeed", Feed)
    monkeypatch.setattr(workers, "_RETENTION_AFTER_S", 0.01)
    monkeypatch.setattr(workers, "_RETENTION_EVERY_S", 0.01)
    opened: list[_Session] = []

    async def connect() -> AsyncSession:
        opened.append(_Session())
        return opened[-1]  # type: ignore[return-value]

    task = asyncio.create_task(workers.carry_out_retention(connect, "outbox.domain_event"))
    async with asyncio.timeout(WATCHDOG_S):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert len(opened) == 3


def test_readers_and_writers_go_before_the_next_positions_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []

    class Feed:
        def __init__(self, session: BoundedSession, table: str) -> None:
            """There is one feed."""

        async def carry_out_retention(self) -> int:
            seconds.append(asyncio.get_running_loop().time())
            if len(seconds) > 4:
                raise asyncio.CancelledError
            return 7 if len(seconds) in (1, 3) else 0

    async def connect() -> AsyncSession:
        return _Session()  # type: ignore[return-value]

    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await workers.carry_out_retention(connect, "outbox.domain_event")

    monkeypatch.setattr(workers, "AsyncFeed", Feed)
    virtual_time.run(work())

    first = workers._RETENTION_AFTER_S
    again = first + 0.1 + workers._RETENTION_EVERY_S
    last = again + 0.1 + workers._RETENTION_EVERY_S
    assert seconds == pytest.approx([first, first + 0.1, again, again + 0.1, last])


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (DatabaseError("away"), "relay_retention_unavailable: DatabaseError: away"),
        (KeyError("customer-7"), "relay_defect: KeyError at "),
    ],
)
async def test_what_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception, says: str
) -> None:
    monkeypatch.setattr(workers, "_RETENTION_AFTER_S", 0.01)
    monkeypatch.setattr(workers, "_RETENTION_EVERY_S", 0.01)
    tries = asyncio.Semaphore(0)

    async def connect() -> AsyncSession:
        tries.release()
        raise failure

    with caplog.at_level(logging.WARNING, "relay"):
        task = asyncio.create_task(workers.carry_out_retention(connect, "outbox.domain_event"))
        async with asyncio.timeout(WATCHDOG_S):
            for _ in range(3):
                await tries.acquire()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert says in caplog.text
    assert "customer-7" not in caplog.text


class _Session:
    async def close(self) -> None:
        """There is nothing to close."""
