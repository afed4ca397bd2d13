"""Messages are completed in groups, while their successors are handled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus._pyamqp.aio._receiver_async import ReceiverLink

from outbox_relay import inbox
from tests.support.inbox import Broker, broker
from tests.support.waiting import elapse, forever, look_again
from tests.support.watchdog import WATCHDOG_S


@pytest.fixture
async def servicebus(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker(tmp_path) as running:
        yield running


async def _left(servicebus: Broker) -> int:
    counts = await servicebus.counts()
    return int(counts["active"] + counts["locked"])


async def test_quick_messages_share_their_completions(servicebus: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int | None]] = []
    send = ReceiverLink.send_disposition

    async def note(link: Any, *, first_delivery_id: int, last_delivery_id: int | None, **more: Any) -> None:
        sent.append((first_delivery_id, last_delivery_id))
        await send(link, first_delivery_id=first_delivery_id, last_delivery_id=last_delivery_id, **more)

    monkeypatch.setattr(ReceiverLink, "send_disposition", note)
    handled: list[str] = []

    servicebus.publish("k", count=60)
    async with servicebus.receiving(lambda received: handled.append(received.id)):
        await servicebus.until_empty()

    assert handled == [f"k-{number}" for number in range(1, 61)]
    assert len(sent) <= 20


async def test_a_message_is_completed_while_its_successor_is_handled(servicebus: Broker) -> None:
    tried: list[str] = []

    async def handle(received: inbox.Message) -> None:
        tried.append(received.id)
        if tried.count("k-3") == 1:
            await forever()

    servicebus.publish("k", count=3)
    async with servicebus.receiving(handle):
        async with asyncio.timeout(WATCHDOG_S):
            while len(tried) < 3 or await _left(servicebus) != 1:
                await look_again()


async def test_what_was_handled_is_completed_before_a_cancelled_receiver_ends(servicebus: Broker) -> None:
    tried: list[str] = []
    third = asyncio.Event()

    async def handle(received: inbox.Message) -> None:
        tried.append(received.id)
        if received.id == "k-3" and not third.is_set():
            third.set()
            await forever()

    servicebus.publish("k", count=3)
    async with servicebus.receiving(handle):
        await asyncio.wait_for(third.wait(), WATCHDOG_S)
    async with servicebus.receiving(handle):
        await servicebus.until_empty()

    assert tried == ["k-1", "k-2", "k-3", "k-3"]


@pytest.mark.parametrize("poison", [inbox.DeadLetter("unknown"), OSError("not now")], ids=["poison", "failure"])
async def test_what_was_handled_before_a_failure_is_not_handled_again(
    servicebus: Broker, poison: Exception
) -> None:
    tried: list[str] = []

    async def handle(received: inbox.Message) -> None:
        tried.append(received.id)
        if received.id == "k-3" and received.delivery_count < 1:
            raise poison

    servicebus.publish("k", count=5)
    async with servicebus.receiving(handle):
        await servicebus.until_empty()

    again = ["k-3"] if isinstance(poison, OSError) else []
    assert tried == ["k-1", "k-2", "k-3", *again, "k-4", "k-5"]


async def test_nothing_more_is_handled_once_a_completion_has_failed(
    servicebus: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the session is gone: another receiver may have its messages."""
    tried: list[str] = []
    queue = servicebus.server.broker.namespace.source("orders").queue
    complete = queue.complete

    def refuse(token: bytes) -> None:
        monkeypatch.setattr(queue, "complete", complete)
        raise queue.lock_lost()

    async def handle(received: inbox.Message) -> None:
        tried.append(received.id)
        if tried == ["k-1", "k-2"]:
            monkeypatch.setattr(queue, "complete", refuse)
        if len(tried) == 3:
            await elapse(0.5)

    servicebus.publish("k", count=5)
    async with servicebus.receiving(handle):
        await servicebus.until_empty()

    assert tried == ["k-1", "k-2", "k-3", "k-2", "k-3", "k-4", "k-5"]
