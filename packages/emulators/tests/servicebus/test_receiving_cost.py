"""The broker's cost of delivering a message of a session and settling it, in function calls.

That number does not depend on the machine, as times do: those are in the README.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

import pytest
from proton import Delivery, symbol
from proton.reactor import Filter

from outbox_relay.emulators.servicebus.edges import Odds
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.fakes import a_message
from packages.emulators.tests.servicebus.raw_amqp import Management, connected
from tests.support.watchdog import WATCHDOG_S

QUEUE, SESSION = "chats", "a"
MESSAGES = 800
CALLS_PER_MESSAGE = 170
"""Of functions in Python and in C; it takes 150. A look at each lock of the session would be 800 more."""

pytestmark = pytest.mark.skipif(
    sys.implementation.name != "cpython", reason="only CPython reports the calls of C functions"
)


@pytest.fixture
async def server(entities: Entities) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities, edges=1) as running:
        # Every lock counts as slow, so that all that a seed adds to a completion is among what is counted.
        running.broker.edges.odds = Odds(delayed=0, redelivered=0, slow_ms=0)
        yield running


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls that this thread makes, in the only item of a list."""
    calls = [0]

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event in {"call", "c_call"}:
            calls[0] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def receive_and_complete(server: ServiceBusServer) -> None:
    """Lock all messages of the session before the first is completed."""
    wanted = Filter({symbol("com.microsoft:session-filter"): cast(Any, SESSION)})
    with connected(server) as connection:
        receiver = connection.create_receiver(QUEUE, credit=MESSAGES, options=wanted)
        for _ in range(MESSAGES):
            receiver.receive(WATCHDOG_S)
        for _ in range(MESSAGES):
            receiver.settle(Delivery.ACCEPTED)
        # Its answer comes after those to the completions.
        Management(connection, QUEUE).ask("renew-session-lock", session_id=SESSION)


async def test_a_message_takes_few_calls_while_many_are_locked(server: ServiceBusServer) -> None:
    queue = server.broker.namespace.outlet(QUEUE).messages
    for number in range(MESSAGES):
        queue.enqueue(a_message(session_id=SESSION, message_id=str(number)))

    with counted_calls() as calls:
        await asyncio.to_thread(receive_and_complete, server)

    assert queue.journal.completed == MESSAGES
    assert calls[0] / MESSAGES <= CALLS_PER_MESSAGE
