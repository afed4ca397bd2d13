"""Publishes a partition's events in order: size-bounded batches, one after another, on one sender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from relay import telemetry
from relay.connections import servicebus_client
from relay.errors import ConfigurationError, PoisonError, SendError, classify
from relay.events import DomainEvent, Reason
from relay.ledger import AcceptedLedger
from relay.messages import Encoder
from relay.senders import PooledSender, SenderPool
from relay.settings import Settings

# What the batch's own properties add around its first message's id, session id and partition key: the
# SDK (7.15.0) sets them on the envelope without counting them towards the batch's size.
_ENVELOPE_BYTES = 96


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that can never be accepted, and why."""

    event: DomainEvent
    reason: Reason
    detail: str


@dataclass(slots=True)
class PartitionOutcome:
    """What became of one partition's events in one invocation.

    Attributes:
        partition_key: Whose events they are.
        published: Events Service Bus accepted now.
        remembered: Events it had accepted in an earlier attempt, so not sent again.
        rejected: Events it will never accept.
        unsent: Events not accepted because of `error`.
        sends: Transfers the service accepted.
        error: What stopped this partition; None when it went through to its end.
    """

    partition_key: str
    published: int = 0
    remembered: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    unsent: int = 0
    sends: int = 0
    error: SendError | None = None


class Publisher:
    """Sends partitions concurrently over a pool of senders, each partition strictly in order."""

    def __init__(
        self, pool: SenderPool, encode: Encoder, ledger: AcceptedLedger, *, send_timeout_s: float
    ) -> None:
        self._pool = pool
        self._encode = encode
        self._ledger = ledger
        self._send_timeout_s = send_timeout_s

    @classmethod
    def from_settings(cls, settings: Settings, encode: Encoder) -> Publisher:
        """A publisher to the topic, with a ledger of its own. Nothing is connected until the first send."""
        pool = SenderPool(servicebus_client(settings.servicebus), settings.servicebus_topic, settings.senders)
        return cls(pool, encode, AcceptedLedger(), send_timeout_s=settings.send_timeout_s)

    async def publish(self, partitions: dict[str, list[DomainEvent]]) -> list[PartitionOutcome]:
        """Publish every partition; a partition that fails leaves the others to finish.

        Args:
            partitions: Events by partition key, each list in commit order.

        Returns:
            One outcome a partition, in the order given. A send that failed is told in its outcome, not raised.
        """
        outcomes = [PartitionOutcome(key) for key in partitions]
        waiting = iter(zip(outcomes, partitions.values(), strict=True))
        outage = _Outage(threshold=2 * self._pool.size)

        async def work() -> None:
            for outcome, events in waiting:
                await self._publish_partition(outcome, events, outage)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._pool.size, len(partitions))):
                workers.create_task(work())
        return outcomes

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._pool.topic

    def has_accepted(self, event: DomainEvent) -> bool:
        """Whether Service Bus has accepted this event from this publisher, as far as it remembers."""
        return self._ledger.holds(event.partition_key, event.id)

    async def close(self) -> None:
        """Close the senders."""
        await self._pool.close()

    async def _publish_partition(
        self, outcome: PartitionOutcome, events: Sequence[DomainEvent], outage: _Outage
    ) -> None:
        pending = [event for event in events if not self.has_accepted(event)]
        outcome.remembered = len(events) - len(pending)
        if not pending:
            return
        try:
            outage.check()
            async with self._pool.borrow() as sender:
                await _PartitionSender(
                    sender, self._encode, self._ledger, self._send_timeout_s, outcome
                ).send_in_order(pending)
        except SendError as error:
            outcome.error = error
            outcome.unsent = len(pending) - outcome.published - len(outcome.rejected)
            outage.failed(error)
        else:
            outage.succeeded()


class _Outage:
    """Ends an invocation early when nothing gets through any more.

    Partial failure is normal, and then the other partitions are tried. But when as many partitions in a row as
    could not be chance have failed, trying thousands more, each to its timeout, would outlast `functionTimeout`.
    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._failures_in_a_row = 0
        self._last: SendError | None = None

    def check(self) -> None:
        if self._last is not None and self._failures_in_a_row >= self._threshold:
            raise type(self._last)(f"not tried, as {self._threshold} partitions in a row failed: {self._last}")

    def failed(self, error: SendError) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row <= self._threshold:
            self._last = error

    def succeeded(self) -> None:
        self._failures_in_a_row = 0


class _PartitionSender:
    """One partition's way through one sender, from its first to its last batch."""

    def __init__(
        self,
        pooled: PooledSender,
        encode: Encoder,
        ledger: AcceptedLedger,
        timeout_s: float,
        outcome: PartitionOutcome,
    ) -> None:
        self._pooled = pooled
        self._sender = pooled.sender
        self._encode = encode
        self._ledger = ledger
        self._timeout_s = timeout_s
        self._outcome = outcome

    async def send_in_order(self, events: Sequence[DomainEvent]) -> None:
        """Send `events`; batch n+1 leaves only after batch n was accepted.

        Raises:
            RetryableError, ConfigurationError: With the events from the failed batch on not accepted.
        """
        # The link is opened before anything is offered: its refusal is no refusal of a message.
        await self._batch_limit()
        if len(events) == 1:
            # In a batch of one, the SDK would encode the message three times instead of once.
            await self._send_alone(self._encode(events[0]), events[0])
        else:
            await self._send_in_batches(events)

    async def _send_in_batches(self, events: Sequence[DomainEvent]) -> None:
        batch: ServiceBusMessageBatch | None = None
        held: list[DomainEvent] = []
        for event in events:
            message = self._encode(event)
            if batch is not None and _fits(batch, message):
                held.append(event)
                continue
            if batch is not None:
                await self._send_batch(batch, held)
            batch, held = await self._batch_for(event), [event]
            if not _fits(batch, message):
                await self._send_alone(message, event)
                # Its room was measured for this event as the first: the next one begins another.
                batch = None
        if batch is not None:
            await self._send_batch(batch, held)

    async def _batch_for(self, first: DomainEvent) -> ServiceBusMessageBatch:
        envelope = _ENVELOPE_BYTES + len(first.id.encode()) + 2 * len(first.partition_key.encode())
        return await self._empty_batch(await self._batch_limit() - envelope)

    async def _batch_limit(self) -> int:
        if self._pooled.batch_limit is None:
            self._pooled.batch_limit = (await self._empty_batch()).max_size_in_bytes
        return self._pooled.batch_limit

    async def _empty_batch(self, max_size_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Asking for a batch opens the link where it is not open yet, and only the open link knows its limit."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._sender.create_message_batch(max_size_bytes)
        except Exception as error:
            refusal = classify(error)
            if isinstance(refusal, PoisonError):
                # No message was offered yet, so none can be to blame.
                refusal = ConfigurationError(f"the link to the topic was refused: {refusal}")
            raise refusal from error

    async def _send_batch(self, batch: ServiceBusMessageBatch, held: list[DomainEvent]) -> None:
        try:
            duration_s = await self._send(batch)
        except PoisonError:
            await self._split(held)
        else:
            self._accept(held, duration_s)

    async def _split(self, held: list[DomainEvent]) -> None:
        """A batch is refused whole: halve it until the culprit stands alone, and send the rest in order."""
        if len(held) == 1:
            await self._send_alone(self._encode(held[0]), held[0])
            return
        middle = len(held) // 2
        for half in (held[:middle], held[middle:]):
            batch = await self._batch_for(half[0])
            if all(_fits(batch, self._encode(event)) for event in half):
                await self._send_batch(batch, half)
            else:
                # Its first id is longer than that of the whole, and its envelope so much larger.
                await self._split(half)

    async def _send_alone(self, message: AmqpAnnotatedMessage, event: DomainEvent) -> None:
        """Send one message outside a batch: a link may take larger messages than batches."""
        try:
            duration_s = await self._send(message)
        except PoisonError as refusal:
            reason = Reason.MESSAGE_TOO_LARGE if refusal.too_large else Reason.MESSAGE_REFUSED
            self._outcome.rejected.append(Rejected(event, reason, str(refusal)))
        else:
            self._accept([event], duration_s)

    async def _send(self, message: AmqpAnnotatedMessage | ServiceBusMessageBatch) -> float:
        """Returns the seconds until it was accepted."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._sender.send_messages(message, timeout=self._timeout_s)
        except Exception as error:
            raise classify(error) from error
        return time.perf_counter() - began

    def _accept(self, events: list[DomainEvent], duration_s: float) -> None:
        for event in events:
            self._ledger.add(event.partition_key, event.id)
        self._outcome.published += len(events)
        self._outcome.sends += 1
        telemetry.accepted(events, duration_s)


def _fits(batch: ServiceBusMessageBatch, message: AmqpAnnotatedMessage) -> bool:
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True
