"""A topic in memory whose answers are configured, and which keeps what was transferred."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.sections import split_batch
from relay.core.events import Event
from relay.core.evidence import AcceptedLedger
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.fuzz.service import Client, Sender, Topic, refusal
from tests.support.outbox import sound

LIMIT = 262_144


class FakeTopic(Topic):
    """A topic whose answers are given one by one, or by the id of an event; what has no answer is accepted.

    Attributes:
        message_limit: What a transfer of one message may have, in bytes; `limit` is a batch's.
        transfers: The ids of each transfer, accepted or not.
        sizes: The bytes of each transfer.
        links: Every link that was made, in order.
        client_closed: Whether the client was closed.
        refuses_links: What is raised instead of opening any link.
        answers_after_s: Seconds that it takes for each transfer.
        fails_when_cancelled: What a send raises that is cancelled while it waits for its answer.
    """

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        message_limit: int | None = None,
        answers: Iterable[Exception | None] = (),
        by_id: dict[str, str] | None = None,
    ) -> None:
        super().__init__(limit, [], frozenset())
        self.message_limit = message_limit or limit
        self.transfers: list[list[str]] = []
        self.sizes: list[int] = []
        self.batched: list[bool] = []
        self.links: list[Link] = []
        self.client_closed = False
        self.refuses_links: Exception | None = None
        self.answers_after_s = 0.0
        self.fails_when_cancelled: Exception | None = None
        self.answers = list(answers)
        self.by_id = by_id or {}

    def transfer(self, payload: bytes, *, batch: bool) -> None:
        found = [parse(each) for each in (split_batch(payload) if batch else [payload])]
        ids = [message.message_id or "" for message in found]
        self.transfers.append(ids)
        self.sizes.append(len(payload))
        self.batched.append(batch)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        for identifier in ids:
            if identifier in self.by_id:
                raise refusal(self.by_id[identifier])
        assert len(payload) <= (self.limit if batch else self.message_limit)
        self._accept(found)

    def ids(self, key: str = "k") -> list[str | None]:
        """The accepted events of a partition key, in order."""
        return [message.message_id for message in self.accepted[key]]

    def client(self) -> ServiceBusClient:
        """A client of this topic alone."""
        return cast(ServiceBusClient, _Client(self))

    def publisher(self, **changes: Any) -> ServiceBusPublisher:
        """A publisher to it, without pauses by default."""
        options: dict[str, Any] = {
            "senders": 1,
            "send_timeout_s": 30.0,
            "attempt_timeout_s": 60.0,
            "pauses_s": (0, 0),
        } | changes
        pool = SenderPool(self.client(), "t", options.pop("senders"))
        return ServiceBusPublisher(pool, messages.plain, options.pop("ledger", AcceptedLedger()), **options)


class Link(Sender):
    """One link.

    Attributes:
        refuses_to_open: What is raised instead of opening it.
        hangs: Whether it opens, sends and closes without an end.
        hangs_on_close: Whether it closes without an end.
        closed: Whether it was closed.
    """

    def __init__(self, topic: FakeTopic) -> None:
        super().__init__(topic)
        self._fake = topic
        self._max_message_size_on_link = topic.message_limit
        self.refuses_to_open = topic.refuses_links
        self.hangs = False
        self.hangs_on_close = False
        self.refuses_to_close: Exception | None = None
        self.closed = False

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        await self._hang()
        if self.refuses_to_open is not None:
            raise self.refuses_to_open
        return await super().create_message_batch(max_size_in_bytes)

    async def send_messages(self, message: ServiceBusMessage | ServiceBusMessageBatch, *, timeout: float) -> None:
        await self._hang()
        try:
            await asyncio.sleep(min(self._fake.answers_after_s, timeout))
        except asyncio.CancelledError:
            if self._fake.fails_when_cancelled is not None:
                raise self._fake.fails_when_cancelled from None
            raise
        if timeout < self._fake.answers_after_s:
            raise OperationTimeoutError(message="timed out")
        await super().send_messages(message, timeout=timeout)

    async def close(self) -> None:
        await self._hang()
        if self.hangs_on_close:
            await asyncio.Event().wait()
        self.closed = True
        if self.refuses_to_close is not None:
            raise self.refuses_to_close

    async def _hang(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()


class _Client(Client):
    def __init__(self, topic: FakeTopic) -> None:
        super().__init__(topic)
        self._fake = topic

    async def close(self) -> None:
        self._fake.client_closed = True

    def get_topic_sender(self, name: str) -> Link:
        link = Link(self._fake)
        self._fake.links.append(link)
        return link


def event(identifier: str, key: str = "k", *, size: int = 0, **changes: Any) -> Event:
    """A sound event with `size` bytes of payload in addition to the minimum."""
    data = {"action": "A", "filling": "x" * size}
    document = {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": data}
    return sound(document | changes)


def events(*identifiers: str, key: str = "k", size: int = 0) -> dict[str, list[Event]]:
    """Events of one partition key."""
    return {key: [event(identifier, key, size=size) for identifier in identifiers]}
