"""Service Bus without a network: takes the bytes the SDK would transfer, and answers as the service would."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._common.utils import transform_outbound_messages
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.error import MessageException
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from outbox_relay.emulators.servicebus.errors import ServiceBusError as Refusal
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.sections import split_batch
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.source import CosmosSource
from relay.core.events import Event, EventName, Rejected
from relay.core.holds import Holds, Order
from relay.core.place import Place
from relay.quarantine.record import record_of
from relay.routes.selection import BY_DEFAULT, Selection

# What may happen to a send: nothing, a cut before the service has it, a cut before its acknowledgement is back.
FAULTS = ("", "before", "after")


class Topic:
    """A topic that detects duplicates by partition key and id, and refuses some ids.

    Attributes:
        accepted: Messages by session, duplicates dropped, in the order of arrival.
        faulty: Sends to which a fault was applied.
        too_large: Batches over the limit, of which there must be none.
    """

    def __init__(self, limit: int, faults: Sequence[str], refused: frozenset[str]) -> None:
        self.limit = limit
        self.accepted: dict[str, list[Message]] = defaultdict(list)
        self.faulty = 0
        self.too_large = 0
        self._faults = iter(faults)
        self._shown = f"Topic(limit={limit}, faults={faults}, refused={sorted(refused)})"
        self._refused = refused
        self._seen: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return self._shown

    def transfer(self, payload: bytes, *, batch: bool) -> None:
        """Take one transfer, or raise what the SDK would raise."""
        fault = next(self._faults, "")
        self.faulty += bool(fault)
        if fault == "before":
            raise ServiceBusConnectionError(message="cut before the transfer")
        if len(payload) > self.limit:
            self.too_large += batch
            outcome = MessageException(condition=b"amqp:link:message-size-exceeded")
            raise MessageSizeExceededError(message=f"{len(payload)} bytes", error=outcome)
        self._accept([parse(each) for each in (split_batch(payload) if batch else [payload])])
        if fault == "after":
            raise ServiceBusConnectionError(message="cut before the acknowledgement")

    def accept_all(self) -> None:
        """Refuse nothing any more."""
        self._refused = frozenset()

    def holds(self, key: str, identifier: str) -> bool:
        """Return True if an event was accepted."""
        return (key, identifier) in self._seen

    def _accept(self, messages: list[Message]) -> None:
        if any(message.message_id in self._refused for message in messages):
            raise refusal("amqp:not-allowed")
        for message in messages:
            assert message.session_id is not None
            assert message.message_id is not None
            name = (message.session_id, message.message_id)
            if name not in self._seen:
                self._seen.add(name)
                self.accepted[message.session_id].append(message)


def refusal(condition: str) -> ServiceBusError:
    """The SDK's error for a refused transfer."""
    return ServiceBusError(condition, error=MessageException(condition=condition.encode()))


class Sender:
    """A ServiceBusSender as the relay uses it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._max_message_size_on_link = topic.limit

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(max_size_in_bytes=max_size_in_bytes or self._topic.limit)

    async def send_messages(self, message: ServiceBusMessage | ServiceBusMessageBatch, *, timeout: float) -> None:
        # A send on the wire lets the other partitions go on.
        await asyncio.sleep(0)
        batch = isinstance(message, ServiceBusMessageBatch)
        try:
            self._topic.transfer(encoded(message), batch=batch)
        except Refusal as error:
            raise refusal(error.condition) from error

    async def close(self) -> None:
        """There is nothing to close."""


class Client:
    """A ServiceBusClient as the pool of senders uses it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def get_topic_sender(self, name: str) -> Sender:
        return Sender(self._topic)

    async def close(self) -> None:
        """There is nothing to close."""


class NeverCheckpointed(CosmosSource):
    """A source of which nothing is known to be settled: documents may be old, as these have any `_ts`."""

    def __init__(self, selection: Selection = BY_DEFAULT) -> None:
        super().__init__(selection, cast(Containers, None))

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        return frozenset()


class Shelf:
    """The quarantine container: records by their id, which a repeated attempt finds there."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}

    async def holds(self) -> Holds:
        return Holds()

    def parked_here(self) -> Mapping[str, Place | None]:
        return {}

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, **_: Any) -> None:
        for item in rejected:
            record = record_of(item, invocation_id)
            self.records.setdefault(record["id"], record)

    async def note_passed(self, orders: Mapping[EventName, Order], /, at: float) -> None:
        """There are no orders."""

    async def remove(self, orders: Mapping[EventName, Order], /) -> None:
        """There are no orders."""

    async def close(self) -> None:
        """There is nothing to close."""


def encoded(message: ServiceBusMessage | ServiceBusMessageBatch | AmqpAnnotatedMessage) -> bytes:
    """The payload that the SDK (7.15.0) would transfer."""
    if isinstance(message, ServiceBusMessageBatch):
        return bytes(encode_payload(bytearray(), BatchMessage(*message._message)))
    outgoing: Any = transform_outbound_messages(
        message, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message
    )
    return bytes(encode_payload(bytearray(), outgoing._message))
