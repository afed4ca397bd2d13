"""A queue with sessions on the emulator, and a receiver on it, for the tests of `inbox`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus._pyamqp.aio import AMQPClientAsync
from azure.servicebus.aio import ServiceBusClient
from proton import Message

from outbox_relay import inbox
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.inbox.event_loop import end_tasks
from tests.support.broker import admin, inject
from tests.support.dead_letters import dead_letter
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

QUEUE = "orders"
QUICK = {"sessions": 1, "accept_s": 2.0, "idle_s": 0.05, "retry_s": 0.02, "renew_s": 0.1}
"""Options for tests: as the defaults, with shorter times."""

Handler = Callable[[inbox.Message], Awaitable[object] | object]


class Broker:
    """A running broker with one queue, and a client for it."""

    def __init__(self, server: ServiceBusServer, client: ServiceBusClient) -> None:
        self.server = server
        self.client = client
        self.connection_string = server.connection_string

    def publish(self, *keys: str, start: int = 1, count: int = 1) -> None:
        """Put `count` messages into each session, numbered from `start`; their ids are like `k-1`."""
        for number in range(start, start + count):
            self.send(*(message(key, number) for key in keys))

    def send(self, *messages: Message) -> None:
        """Put messages into the queue at once: opening a sender takes the SDK a second."""
        queue = self.server.broker.namespace.destination(QUEUE)
        queue.publish([parse(bytes(each.encode())) for each in messages])

    @property
    def outlet(self) -> Any:
        """The queue and its dead-letter queue, in this process."""
        return self.server.broker.namespace.outlet(QUEUE)

    def dead_letter(self, key: str, count: int = 1) -> None:
        """Dead-letter the first messages of a session."""
        dead_letter(self.outlet, key, count)

    def dead(self) -> list[str | None]:
        """The ids of the dead letters."""
        return [each.message.message_id for each in self.outlet.dead_letters.peek(0, 10_000)]

    async def expire_locks(self) -> None:
        """Have the lock on every session expire now."""
        await inject(self.server.admin_port, kind="expire-locks", entity=QUEUE)

    async def cut(self) -> None:
        """Cut the connections that receive from the queue."""
        await inject(self.server.admin_port, kind="cut-receiver", entity=QUEUE)

    async def counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = (await admin(self.server.admin_port, "GET", "entities"))[QUEUE]
        return counts

    @property
    def receivers(self) -> int:
        """Number of connections that receive from the queue, or wait for one of its sessions."""
        paths = [each.links for each in self.server.broker.connections]
        return sum(links.receives_from(lambda path: path == QUEUE) for links in paths)

    async def until_empty(self) -> None:
        """Wait until every message is settled."""
        async with asyncio.timeout(WATCHDOG_S):
            while (counts := await self.counts())["active"] or counts["locked"]:
                await look_again()

    async def dead_letters(self) -> list[ServiceBusReceivedMessage]:
        """Look at what is in the dead-letter queue, up to 100 messages."""
        receiver = self.client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        async with receiver:
            return await receiver.peek_messages(max_message_count=100)

    @asynccontextmanager
    async def receiving(self, handler: Handler, **options: Any) -> AsyncIterator[inbox.Receiver]:
        """Run a receiver during the block, then cancel it. An error of the receiver fails the test."""
        receiver = inbox.Receiver(self.client, handler, queue=QUEUE, **{**QUICK, **options})
        running = asyncio.create_task(receiver.run())
        try:
            yield receiver
        finally:
            await end_tasks([running])
        if not running.cancelled():
            running.result()


@asynccontextmanager
async def broker(folder: Path, *, edges: int | None = None, **properties: Any) -> AsyncIterator[Broker]:
    """Start a broker whose queue has these properties, in addition to sessions."""
    queue = {"Name": QUEUE, "Properties": {"RequiresSession": True, "MaxDeliveryCount": 10, **properties}}
    plain = {"Name": "plain", "Properties": {}}
    file = folder / "Config.json"
    namespace = {"Name": "n", "Queues": [queue, plain], "Topics": []}
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AMQPClientAsync, "_keep_alive_async", _keep_alive)
        async with (
            ServiceBusServer(Entities.from_file(file), edges=edges) as server,
            inbox.connect(server.connection_string) as client,
        ):
            yield Broker(server, client)


@contextmanager
def watchdog_says(said: Callable[[str], object]) -> Iterator[None]:
    """Call `said` with each line that the watchdog logs during the block, in the watchdog's thread."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said(record.getMessage())

    handler, logger = Handler(), logging.getLogger("outbox_relay.inbox.event_loop")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def _keep_alive(client: Any) -> None:
    """Instead of the SDK's own, which wakes up once a second, so that every close takes up to a second."""
    while client._connection and not client._shutdown:
        await look_again()


def message(key: str, number: int, body: bytes | str | None = None, **properties: Any) -> Message:
    """A message as the relay sends it."""
    return Message(
        json.dumps({"action": "Counted", "number": number}).encode() if body is None else body,
        inferred=True,  # bytes are a data section
        id=f"{key}-{number}",
        group_id=key,
        subject="Counted",
        content_type="application/json",
        properties={"type": "domainEvent", "sequence": number, **properties},
    )
