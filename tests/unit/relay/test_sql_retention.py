"""Positions that the retention policy allows are deleted while the worker reads, and no failure ends that."""

from __future__ import annotations

import asyncio
import logging

import pytest

from changefeed import DatabaseError
from changefeed.statements import AsyncSession
from relay.sql import worker as workers
from relay.sql.database import BoundedSession
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
