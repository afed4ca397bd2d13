"""Why a receiver is made as it is: traps of the SDK, and brokers that fall silent."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from outbox_relay import inbox
from outbox_relay.inbox import receiver as receiver_module
from outbox_relay.inbox import session as session_module
from outbox_relay.inbox.event_loop import end_tasks
from outbox_relay.inbox.session import Session
from tests.support.inbox import QUEUE, QUICK, Broker, Handler, broker
from tests.support.silence import SilentProxy, Step
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]


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
    # Completes what has arrived, and asks for more than the next message.
    arrived = itertools.cycle((0, len(_ARRIVING)))
    monkeypatch.setattr(session_module, "arrived", lambda receiver: next(arrived))

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
        await asyncio.wait_for(arriving, WATCHDOG_S)
        swallowed.set()
        await asyncio.sleep(60)
    finally:
        ended.set()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio.wait_for passes every cancellation on")
async def test_one_cancellation_can_be_swallowed() -> None:
    swallowed, ended = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(_swallowing(swallowed, ended))
    await asyncio.wait_for(swallowed.wait(), WATCHDOG_S)  # the cancellation was asked for, and the task continues
    _, pending = await asyncio.wait({task}, timeout=0.2)
    assert pending

    await asyncio.wait_for(end_tasks([task]), WATCHDOG_S)
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

    await asyncio.wait_for(running, WATCHDOG_S)


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
        async def _settle(self, received: ServiceBusReceivedMessage) -> None:
            if await super()._settle(received) is not None:
                await self._receiver.abandon_message(received)

    monkeypatch.setattr(receiver_module, "Session", Staying)

    assert await _handled_with_a_failure(servicebus) == [1, 3, 4, 5, 2]


# A broker that falls silent, at each step of a session: the connection is discarded, and another one opened


BOUND_S = 50.0
"""Without a limit, a step waits forever; the SDK's own limits, if it has some, are a minute or more."""

OPENING = [
    None,
    Step("header"),
    Step("sasl"),
    Step("sasl", 2),
    Step("header", 2),
    Step("open"),
    Step("open", middle=True),
    Step("begin"),
    Step("attach"),
    Step("flow"),
    Step("transfer"),
    Step("disposition"),
]
ACCEPTING = [Step("attach", 3), Step("attach", 3, middle=True)]
RECEIVING = [Step("transfer", 2), Step("transfer", 2, middle=True)]
SETTLING = [Step("disposition", 2), Step("disposition", 2, middle=True)]
RENEWING = [Step("attach", 4), Step("transfer", 3), Step("transfer", 3, middle=True)]


@asynccontextmanager
async def receiving(
    servicebus: Broker, step: Step | None, handler: Handler, *, times: int = 1, **options: Any
) -> AsyncIterator[tuple[SilentProxy, inbox.Receiver]]:
    """Run a receiver whose connections go through a proxy. At the end, every connection must be closed."""
    async with SilentProxy(servicebus.server.port, step, times=times) as proxy:
        address = servicebus.connection_string.replace(f":{servicebus.server.port};", f":{proxy.port};")
        async with inbox.connect(address) as client:
            chosen = {**QUICK, "accept_s": 0.4, "answer_s": 0.4, "renew_s": 10.0, **options}
            receiver = inbox.Receiver(client, handler, queue=QUEUE, **chosen)
            running = asyncio.create_task(receiver.run())
            try:
                yield proxy, receiver
            finally:
                async with asyncio.timeout(BOUND_S):
                    await end_tasks([running])
            if not running.cancelled():
                running.result()
        async with asyncio.timeout(BOUND_S):
            for each in proxy.conversations:
                await each.ended.wait()


@pytest.mark.parametrize("step", [*OPENING, *ACCEPTING, *RECEIVING, *SETTLING], ids=str)
async def test_a_silent_broker_does_not_stop_the_receiver(step: Step | None, tmp_path: Path) -> None:
    handled: list[str] = []

    async with broker(tmp_path) as servicebus:
        servicebus.publish("k", count=2)
        async with receiving(servicebus, step, lambda received: handled.append(received.id)) as (proxy, _):
            async with asyncio.timeout(BOUND_S):
                await servicebus.until_empty()
                (silenced,) = proxy.silenced
                await silenced.ended.wait()

    assert handled == ["k-1", "k-2"]


@pytest.mark.parametrize("step", RENEWING, ids=str)
async def test_a_handler_ends_with_its_lock_if_renewals_are_not_answered(step: Step, tmp_path: Path) -> None:
    began: list[str] = []

    async def handle(received: inbox.Message) -> None:
        began.append(received.id)
        if len(began) == 1:
            await asyncio.sleep(60)

    async with broker(tmp_path, LockDuration="PT1S") as servicebus:
        servicebus.publish("k")
        async with receiving(servicebus, step, handle) as (proxy, _), asyncio.timeout(BOUND_S):
            await servicebus.until_empty()
            (silenced,) = proxy.silenced
            await silenced.ended.wait()

    assert began == ["k-1", "k-1"]


@pytest.mark.parametrize("kind", ["complete", "dead-letter", "abandon"])
async def test_a_settlement_that_does_not_arrive_is_repeated(kind: str, tmp_path: Path) -> None:
    tried: list[str] = []

    async def handle(received: inbox.Message) -> None:
        tried.append(received.id)
        if len(tried) == 1:
            proxy.silence()
            if kind == "abandon":
                raise OSError("not now")
        if kind == "dead-letter":
            raise inbox.DeadLetter("unknown")

    async with broker(tmp_path) as servicebus:
        servicebus.publish("k")
        async with receiving(servicebus, None, handle, times=0) as (proxy, _), asyncio.timeout(BOUND_S):
            await servicebus.until_empty()
            (silenced,) = proxy.silenced
            await silenced.ended.wait()

    assert tried == ["k-1", "k-1"]


async def test_a_receiver_that_was_stopped_does_not_wait_for_a_silent_broker(tmp_path: Path) -> None:
    async def handle(received: inbox.Message) -> None:
        proxy.silence()
        receiver.stop()

    async with broker(tmp_path) as servicebus:
        servicebus.publish("k")
        async with receiving(servicebus, None, handle, times=0, grace_s=0.1) as (proxy, receiver):
            async with asyncio.timeout(BOUND_S):
                while not proxy.silenced:
                    await asyncio.sleep(0.02)
                await proxy.silenced[0].ended.wait()


@pytest.mark.parametrize("step", [None, Step("open"), Step("attach", 3)], ids=str)
async def test_a_receiver_stops_while_it_waits_for_a_silent_broker(step: Step | None, tmp_path: Path) -> None:
    async with (
        broker(tmp_path) as servicebus,
        receiving(servicebus, step, print, times=99, accept_s=60.0, answer_s=60.0) as (proxy, receiver),
        asyncio.timeout(BOUND_S),
    ):
        servicebus.publish("k")
        while not proxy.silenced:
            await asyncio.sleep(0.02)
        receiver.stop()
        await proxy.silenced[0].ended.wait()
