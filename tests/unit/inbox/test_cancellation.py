"""Settling and closing are finished though the receiver is cancelled, for a limited time."""

from __future__ import annotations

import asyncio

import pytest

from inbox.cancellation import end_tasks, finish


async def test_work_is_finished_before_the_cancellation_is_passed_on() -> None:
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        done.set()

    task = asyncio.create_task(finish(work()))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
    assert not task.done()
    go_on.set()
    await asyncio.wait_for(asyncio.wait({task}), 5)

    assert done.is_set()
    assert task.cancelled()


async def test_work_that_takes_too_long_after_a_cancellation_is_cancelled_too() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.create_task(finish(work(), within_s=0.05))
    await begun.wait()
    task.cancel()
    await asyncio.wait_for(asyncio.wait({task}), 5)

    assert ended.is_set()
    assert task.cancelled()


async def test_what_the_work_returns_or_raises_is_passed_on() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise OSError("away")

    assert await finish(answer()) == 42
    with pytest.raises(OSError, match="away"):
        await finish(fail())


async def test_an_error_of_work_that_was_cancelled_is_not_reported_as_lost() -> None:
    begun = asyncio.Event()

    async def fail_late() -> None:
        begun.set()
        await asyncio.sleep(0.02)
        raise OSError("away")

    task = asyncio.create_task(finish(fail_late()))
    await begun.wait()
    await end_tasks([task])

    assert task.cancelled()
