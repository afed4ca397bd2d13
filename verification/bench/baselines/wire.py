"""The protocol's ceiling: encoded batches, pipelined over one link by Apache Qpid Proton.

It uses no SDK, encodes nothing within the timing, and never waits for one batch to be accepted before it sends the
next: what remains is the protocol, the socket and the broker. It shows what the SDK costs. It is no alternative to
the relay, because order within a key depends on waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from azure.functions import DocumentList
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload  # what the SDK itself sends
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from local.stack.environment import TOPIC
from verification.bench.amqp import LARGEST_BATCH, PipelinedSender
from verification.bench.baselines.sdk import MessageFields, fields_by_key


class Wire:
    """Sends the same batches without the SDK."""

    name = "wire"

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string
        self._sender: PipelinedSender | None = None
        self._prepared: list[list[bytes]] = []

    async def open(self) -> None:
        self._sender = await PipelinedSender.open(self._connection_string, TOPIC)

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        self._prepared = [encoded_batches(documents) for documents in invocations]

    async def run(self) -> int:
        assert self._sender is not None
        for batches in self._prepared:
            await self._sender.send(batches)
        return sum(len(batches) for batches in self._prepared)

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def encoded_batches(documents: DocumentList) -> list[bytes]:
    """Return one batch per partition key, as the SDK encodes it.

    Raises:
        MessageSizeExceededError: A key's events do not fit into one frame.
    """
    return [_encoded(fields) for fields in fields_by_key(documents).values()]


def _encoded(fields: Iterable[MessageFields]) -> bytes:
    batch = ServiceBusMessageBatch(LARGEST_BATCH)
    for each in fields:
        batch.add_message(AmqpAnnotatedMessage(**each))
    encoded = bytearray()
    encode_payload(encoded, BatchMessage(*batch._message))
    return bytes(encoded)
