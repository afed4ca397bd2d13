"""The time that a store has to set a message aside."""

from __future__ import annotations

import asyncio

import pytest

from outbox_relay import inbox
from outbox_relay.inbox.key_parker import KeyParker, NotKept
from outbox_relay.inbox.options import Options
from outbox_relay.inbox.telemetry import Telemetry
from tests.support import virtual_time
from tests.support.waiting import forever


class Stuck(inbox.MemoryStore):
    """A store whose first answer does not come, as while a stopped process holds the key's row."""

    asked = 0

    async def is_parked(self, topic: str, key: str) -> bool:
        self.asked += 1
        if self.asked == 1:
            await forever()
        return await super().is_parked(topic, key)


def test_a_store_that_does_not_answer_holds_a_message_up_only_for_its_time() -> None:
    handled: list[str] = []
    message = inbox.Message(id="k-1", key="k", body=b"")

    async def handle() -> float:
        parker = KeyParker(Stuck(), Options(answer_s=15.0), Telemetry())
        loop = asyncio.get_running_loop()
        with pytest.raises(NotKept):
            await parker.handle(message, lambda received: handled.append(received.id))
        waited_s = loop.time()
        assert handled == []
        await parker.handle(message, lambda received: handled.append(received.id))
        return waited_s

    assert virtual_time.run(handle()) == 15.0
    assert handled == ["k-1"]
