from __future__ import annotations

import asyncio
import time

import pytest

from relay.core.deadline import Deadline, within
from relay.core.errors import QuarantineError, RetryableError
from tests.support import virtual_time


def test_what_is_left_is_bounded_by_the_deadline_and_by_what_was_asked_for() -> None:
    deadline = Deadline.after(100)

    assert deadline.left_s(at_most=30) == 30
    assert 99 < deadline.left_s(at_most=1000) <= 100


def test_behind_it_nothing_is_begun_and_the_setting_is_named() -> None:
    deadline = Deadline(ends=time.monotonic(), lasts_s=480)

    with pytest.raises(RetryableError, match=r"RELAY_ATTEMPT_TIMEOUT_S \(480 s\)"):
        deadline.left_s(at_most=30)


def test_some_seconds_before_the_end_there_is_time_left() -> None:
    assert 0 < Deadline(ends=time.monotonic() + 20, lasts_s=480).left_s(at_most=30) <= 20


def test_a_step_that_takes_too_long_says_which() -> None:
    async def step() -> None:
        async with within(5, QuarantineError, "reading"):
            await asyncio.sleep(6)

    with pytest.raises(QuarantineError, match="reading took longer than 5 s; the next attempt tries again"):
        virtual_time.run(step())


async def test_a_timeout_within_a_step_is_the_steps_own() -> None:
    with pytest.raises(TimeoutError, match="of a socket"):
        async with within(5, QuarantineError, "reading"):
            raise TimeoutError("of a socket")
