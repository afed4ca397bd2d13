"""A receiver's options, and what is finished though it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outbox_relay import inbox
from outbox_relay.inbox.event_loop import end_tasks, finish
from tests.support.waiting import elapse, forever
from tests.support.watchdog import WATCHDOG_S

CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sessions": 0}, "sessions is 0; it must be 1 or more"),
        ({"prefetch": 0}, "prefetch is 0; it must be 1 or more"),
        ({"retry_s": -1.0}, "retry_s is -1.0 seconds"),
        ({"accept_s": 0.0}, "accept_s, idle_s and answer_s must be above 0"),
    ],
)
def test_numbers_out_of_their_range_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        inbox.Options(**options)


def test_the_pauses_double_up_to_the_longest() -> None:
    options = inbox.Options(retry_s=1.0, retry_max_s=5.0)

    assert [options.pause_s(count) for count in (0, 1, 2, 3, 10_000)] == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    "places",
    [{}, {"topic": "t"}, {"subscription": "s"}, {"queue": "q", "topic": "t", "subscription": "s"}],
    ids=lambda places: " ".join(places) or "nothing",
)
def test_it_must_be_clear_what_to_receive_from(places: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a topic and a subscription, or a queue"):
        inbox.Receiver(inbox.connect(CONNECTION), print, **places)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="session_count"):
        inbox.Receiver(inbox.connect(CONNECTION), print, queue="q", session_count=3)


def test_a_body_that_is_not_json_is_a_dead_letter_that_does_not_quote_it() -> None:
    with pytest.raises(inbox.DeadLetter) as refused:
        inbox.Message(id="a", key="k", body=b"secret").json()

    assert refused.value.reason == "unreadable"
    assert "secret" not in str(refused.value)


# Settling and closing are finished though the receiver is cancelled, for a limited time


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
        await elapse(0.01)
    assert not task.done()
    go_on.set()
    await asyncio.wait_for(asyncio.wait({task}), WATCHDOG_S)

    assert done.is_set()
    assert task.cancelled()


async def test_work_that_takes_too_long_after_a_cancellation_is_cancelled_too() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    task = asyncio.create_task(finish(work(), within_s=0.05))
    await begun.wait()
    task.cancel()
    await asyncio.wait_for(asyncio.wait({task}), WATCHDOG_S)

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
        await elapse(0.02)
        raise OSError("away")

    task = asyncio.create_task(finish(fail_late()))
    await begun.wait()
    await end_tasks([task])

    assert task.cancelled()
