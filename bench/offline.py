"""The relay and the SDK without a network: what each of them computes for an event.

A sender here makes batches as the SDK's does, and accepts each at once. The processor time of sockets and event
loop is the same for both, but varies between runs by more than the difference to be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from bench.baselines.sdk import MessageFields
from relay.assembly import CosmosRelay, assemble
from relay.servicebus import publisher
from relay.settings import Connection, Settings

LINK_LIMIT = 256 * 1024

# Without the envelope's room, as the relay leaves it: see bench.baselines.sdk.
_BATCH_LIMIT = LINK_LIMIT - 204

ENVIRONMENT = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=bm9uZQ==;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=bm9uZQ==;",
}


class AcceptingSender:
    """Accepts everything."""

    _max_message_size_on_link = LINK_LIMIT

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(max_size_in_bytes or LINK_LIMIT)

    async def send_messages(
        self, message: AmqpAnnotatedMessage | ServiceBusMessageBatch, *, timeout: float | None = None
    ) -> None:
        """Accept it."""

    async def close(self) -> None:
        """There is nothing to close."""


class AcceptingClient:
    """Creates senders that accept everything."""

    def get_topic_sender(self, topic: str) -> AcceptingSender:
        return AcceptingSender()

    async def close(self) -> None:
        """There is nothing to close."""


def _client(connection: Connection, **options: object) -> ServiceBusClient:
    return AcceptingClient()  # type: ignore[return-value]


@contextmanager
def accepting_senders() -> Iterator[None]:
    """Senders of relays that are assembled within the block accept everything at once."""
    with mock.patch.object(publisher, "servicebus_client", _client):
        yield


@contextmanager
def offline_relay() -> Iterator[CosmosRelay]:
    """A relay with the default settings, whose senders accept everything at once."""
    with accepting_senders():
        yield assemble(Settings.from_environment(ENVIRONMENT))


async def encode(messages: Mapping[str, Sequence[MessageFields]]) -> None:
    """What the relay's sender computes for these messages, by partition key, without the relay."""
    sender = AcceptingSender()
    for of_key in messages.values():
        await _encode(sender, of_key)


async def _encode(sender: AcceptingSender, messages: Sequence[MessageFields]) -> None:
    if len(messages) == 1:
        await sender.send_messages(AmqpAnnotatedMessage(**messages[0]))
        return
    batch = await sender.create_message_batch(_BATCH_LIMIT)
    for fields in messages:
        message = AmqpAnnotatedMessage(**fields)
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            await sender.send_messages(batch)
            batch = await sender.create_message_batch(_BATCH_LIMIT)
            batch.add_message(message)
    await sender.send_messages(batch)
