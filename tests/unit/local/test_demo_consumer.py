"""The consumer of the demo: what it prints is passed on, and its end is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from local.demo import consumer
from local.stack.parts import Part, PartFailed
from outbox_relay import inbox
from tests.support.printing_consumer import MESSAGE
from tests.support.watchdog import WATCHDOG_S


async def test_a_message_is_passed_on_and_the_end_of_the_consumer_is_an_error(tmp_path: Path) -> None:
    part = await Part.start("the consumer", "tests.support.printing_consumer", log=tmp_path / "log")
    handled: list[inbox.Message] = []
    try:
        async with asyncio.timeout(WATCHDOG_S):
            with pytest.raises(PartFailed, match="the consumer has ended"):
                await consumer.pass_on(part, handled.append)
    finally:
        await part.kill()

    assert handled == [MESSAGE]
