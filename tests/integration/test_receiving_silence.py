"""A broker that falls silent, at each step of a session: the connection is discarded, and another one opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import inbox
from inbox.cancellation import end_tasks
from tests.support.inbox import QUEUE, QUICK, Broker, Handler, broker
from tests.support.silence import SilentProxy, Step

BOUND_S = 20.0
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
