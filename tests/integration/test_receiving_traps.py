"""The traps of azure-servicebus 7.15.0, each with and without the receiver's safeguard."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

import inbox
from inbox import receiver as receiver_module
from inbox.cancellation import end_tasks
from inbox.session import Session
from tests.support.inbox import QUEUE, Broker, broker


@pytest.fixture
async def servicebus(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker(tmp_path) as running:
        yield running


# Without a prefetch, what arrives between two calls of receive_messages is released, one by one.


_ARRIVING = list(range(1, 31))


async def _received_while_more_arrive(servicebus: Broker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of a session's messages as they are handled, where one arrives shortly before each completion
    and another at the same moment: between them, the SDK hears of the completion.
    """
    queue = servicebus.server.broker.namespace.source(QUEUE).queue
    complete, numbers = queue.complete, iter(_ARRIVING)
    handled: list[int] = []

    def arrive() -> None:
        for number in itertools.islice(numbers, 1):
            servicebus.publish("k", start=number)

    def complete_and_arrive(token: bytes) -> None:
        complete(token)
        arrive()

    async def handle(received: inbox.Message) -> None:
        handled.append(received.sequence or 0)
        arrive()
        await asyncio.sleep(0.002)  # until it is on the wire

    monkeypatch.setattr(queue, "complete", complete_and_arrive)
    arrive()
    arrive()
    async with servicebus.receiving(handle, sessions=1):
        await servicebus.until_empty()
    return handled


async def test_a_session_keeps_its_order_while_messages_arrive(
    servicebus: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await _received_while_more_arrive(servicebus, monkeypatch) == _ARRIVING


async def test_without_a_prefetch_it_would_not(servicebus: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ServiceBusClient.get_queue_receiver

    def without_prefetch(client: ServiceBusClient, **options: Any) -> Any:
        return original(client, **{**options, "prefetch_count": 0})

    monkeypatch.setattr(ServiceBusClient, "get_queue_receiver", without_prefetch)

    handled = await _received_while_more_arrive(servicebus, monkeypatch)
    assert sorted(handled) == _ARRIVING
    assert handled != _ARRIVING


async def test_a_receiver_without_a_prefetch_is_refused(servicebus: Broker) -> None:
    with pytest.raises(ValueError, match="prefetch is 0; it must be 1 or more"):
        inbox.Receiver(servicebus.client, print, queue=QUEUE, prefetch=0)


# A wait for the next session is repeated three times by default, with pauses between.


async def _wait_for_nothing(client: ServiceBusClient) -> float:
    """How many seconds it takes to hear that no session has messages, where 0.1 were asked for."""
    receiver = client.get_queue_receiver(QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.1)
    started = time.monotonic()
    with pytest.raises(OperationTimeoutError):
        await receiver.__aenter__()
    return time.monotonic() - started


async def test_a_wait_for_a_session_is_not_repeated(servicebus: Broker) -> None:
    address = servicebus.connection_string
    async with ServiceBusClient.from_connection_string(address, retry_backoff_factor=0.01) as retrying:
        once, repeated = await asyncio.gather(_wait_for_nothing(servicebus.client), _wait_for_nothing(retrying))
        assert repeated > 2.5 * once

        with pytest.raises(ValueError, match=r"retries each operation 3 times.*inbox.connect"):
            inbox.Receiver(retrying, print, queue=QUEUE)


# Before Python 3.12, asyncio.wait_for can swallow a cancellation.


async def _swallowing(swallowed: asyncio.Event, ended: asyncio.Event) -> None:
    """Wait as the SDK does, twice. What the first wait is for arrives in the turn in which it is cancelled."""
    arriving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.current_task()
    assert task is not None

    def arrive_and_cancel() -> None:
        arriving.set_result(None)
        task.cancel()

    asyncio.get_running_loop().call_soon(arrive_and_cancel)
    try:
        await asyncio.wait_for(arriving, 60)
        swallowed.set()
        await asyncio.sleep(60)
    finally:
        ended.set()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio.wait_for passes every cancellation on")
async def test_one_cancellation_can_be_swallowed() -> None:
    swallowed, ended = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(_swallowing(swallowed, ended))
    await asyncio.wait_for(swallowed.wait(), 5)  # the cancellation was asked for, and the task continues
    _, pending = await asyncio.wait({task}, timeout=0.2)
    assert pending

    await asyncio.wait_for(end_tasks([task]), 5)
    assert ended.is_set()


async def test_a_receiver_ends_though_its_wait_swallows_cancellations(
    servicebus: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = 0

    class Stubborn(Session):
        async def accept(self) -> None:
            nonlocal waits
            waits += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if waits > 1:
                    raise
                await asyncio.sleep(60)  # it was swallowed, and the SDK waits on

    monkeypatch.setattr(receiver_module, "Session", Stubborn)
    stopped = inbox.Receiver(servicebus.client, print, queue=QUEUE, sessions=1)
    running = asyncio.create_task(stopped.run())
    await asyncio.sleep(0.05)
    stopped.stop()

    await asyncio.wait_for(running, 5)


# After an abandoned message, the SDK hands out the ones that were received with it.


async def _handled_with_a_failure(servicebus: Broker) -> list[int]:
    """The numbers of a session's messages as they are handled, where the second fails twice."""
    handled: list[int] = []
    failures = iter((True, True))

    async def handle(received: inbox.Message) -> None:
        if received.sequence == 2 and next(failures, False):
            raise OSError("not now")
        handled.append(received.sequence or 0)

    servicebus.publish("k", count=5)
    async with servicebus.receiving(handle):
        await servicebus.until_empty()
    return handled


async def test_nothing_is_handled_before_an_abandoned_message(servicebus: Broker) -> None:
    assert await _handled_with_a_failure(servicebus) == [1, 2, 3, 4, 5]


async def test_a_receiver_that_stayed_in_the_session_would_break_the_order(
    servicebus: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Staying(Session):
        async def _settle(self, received: ServiceBusReceivedMessage) -> bool:
            if not await super()._settle(received):
                await self._receiver.abandon_message(received)
            return True

    monkeypatch.setattr(receiver_module, "Session", Staying)

    assert await _handled_with_a_failure(servicebus) == [1, 3, 4, 5, 2]
