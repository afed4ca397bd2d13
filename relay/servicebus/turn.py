"""One partition key's turn: its events in order, size-bounded batches, one after another, on one sender."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from relay.deadline import Deadline
from relay.errors import DoubtfulRefusalError, PoisonError, RetryableError
from relay.events import Event, Reason, Rejected
from relay.evidence import Evidence
from relay.fence import Clearance
from relay.ledger import AcceptedLedger
from relay.results import KeyOutcome
from relay.servicebus.messages import Encoder
from relay.servicebus.senders import LinkLimits, Sender, Transfer
from relay.telemetry import instruments

# What the batch's own properties add around its first message's id, session id and partition key: the
# SDK (7.15.0) sets them on the envelope without counting them towards the batch's size.
_ENVELOPE_BYTES = 96

# What the SDK counts for a message of 256 bytes or more in a batch, beside the message itself.
_BATCH_OVERHEAD_BYTES = 8

# More than all properties of a message may have, twice over for CloudEvents (`events.MAX_PROPERTIES_BYTES`).
_PROPERTIES_BYTES = 40_000

# Enough for a dropped connection or a detached link. What lasts longer is for the trigger's retry policy.
PAUSES_S = (0.2, 0.8)
# A throttled namespace asks for longer ones.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling
_BUSY_FACTOR = 10


@dataclass(frozen=True, slots=True)
class Rules:
    """How an attempt sends.

    Attributes:
        deadline: When it ends.
        send_timeout_s: One transfer, from the first try to the last, in seconds.
        clearance: Until when its events may be sent.
        isolate: Whether a batch that the service answers with an error is taken apart, though the error may pass,
            to find the one event that it is about.
        stop_at_rejection: Whether what follows a rejected event is held back.
        lasting: Whether earlier attempts have failed for so long that a refusal needs no further evidence.
        pauses_s: Seconds before each further try of a transfer.
    """

    deadline: Deadline
    send_timeout_s: float
    clearance: Clearance
    isolate: bool
    stop_at_rejection: bool
    lasting: bool
    pauses_s: Sequence[float]


class Turn:
    """One partition key's way through one sender, from its first to its last batch."""

    def __init__(
        self,
        sender: Sender,
        encode: Encoder,
        ledger: AcceptedLedger,
        evidence: Evidence,
        rules: Rules,
        outcome: KeyOutcome,
    ) -> None:
        self._sender = sender
        self._encode = encode
        self._ledger = ledger
        self._evidence = evidence
        self._rules = rules
        self._outcome = outcome

    async def send_in_order(self, events: Sequence[Event]) -> None:
        """Send `events`; batch n+1 leaves only after batch n was accepted.

        Raises:
            RetryableError, ConfigurationError: With the events from the failed batch on not accepted.
        """
        if len(events) == 1:
            # In a batch of one, the SDK would encode the message three times instead of once.
            await self._send_alone(events[0], self._encode(events[0]))
            return
        batch: ServiceBusMessageBatch | None = None
        held: list[Event] = []
        for event in events:
            message = self._encode(event)
            if batch is not None and _fits(batch, message):
                held.append(event)
                continue
            if batch is not None:
                await self._send_batch(batch, held)
            if self._stopped:
                return
            batch, held = await self._batch_for(event), [event]
            if not _fits(batch, message):
                await self._send_alone(event, message)
                # Its room was measured for this event as the first: the next one begins another.
                batch = None
        if batch is not None and not self._stopped:
            await self._send_batch(batch, held)

    @property
    def _stopped(self) -> bool:
        return self._rules.stop_at_rejection and bool(self._outcome.rejected)

    async def _batch_for(self, first: Event) -> ServiceBusMessageBatch:
        envelope = _ENVELOPE_BYTES + len(first.id.encode()) + 2 * len(first.partition_key.encode())
        return await self._sender.batch(self._left_s(), reserved=envelope)

    async def _limits(self) -> LinkLimits:
        return await self._sender.limits(self._left_s())

    def _left_s(self) -> float:
        return self._rules.deadline.left_s(at_most=self._rules.send_timeout_s)

    async def _send_batch(self, batch: ServiceBusMessageBatch, held: list[Event]) -> None:
        try:
            duration_s = await self._send(batch, held[0])
        except PoisonError:
            await self._split(held)
        except RetryableError as error:
            if not (self._rules.isolate and error.refused):
                raise
            await self._split(held)
        else:
            self._accept(held, duration_s)

    async def _split(self, held: list[Event]) -> None:
        """A batch is refused whole: halve it until the culprit stands alone, and send the rest in order."""
        if len(held) == 1:
            await self._send_alone(held[0], self._encode(held[0]))
            return
        middle = len(held) // 2
        for half in (held[:middle], held[middle:]):
            if self._stopped:
                return
            batch = await self._batch_for(half[0])
            if all(_fits(batch, self._encode(event)) for event in half):
                await self._send_batch(batch, half)
            else:
                # Its first id is longer than that of the whole, and its envelope so much larger.
                await self._split(half)

    async def _send_alone(self, event: Event, message: AmqpAnnotatedMessage) -> None:
        """Send one message outside a batch: a link may take larger messages than batches."""
        try:
            await self._check_size(message)
            duration_s = await self._send(message, event)
        except PoisonError as refusal:
            self._require_evidence(event, refusal)
            reason = Reason.MESSAGE_TOO_LARGE if refusal.too_large else Reason.MESSAGE_REFUSED
            self._outcome.rejected.append(Rejected.of(event, reason, str(refusal), refusal.condition or None))
        except RetryableError as error:
            if error.refused:
                self._outcome.blocked_by = event.id
            raise
        else:
            self._accept([event], duration_s)

    def _require_evidence(self, event: Event, refusal: PoisonError) -> None:
        """Stop at what may not be the event's own fault: the next attempt knows more."""
        if not refusal.condition or self._evidence.refused(event) or self._rules.lasting:
            return
        self._outcome.blocked_by = event.id
        raise DoubtfulRefusalError(
            f"{refusal} It is not certain yet that the content of this event is the cause: it is tried again "
            "before it is set aside."
        ) from refusal

    async def _check_size(self, message: AmqpAnnotatedMessage) -> None:
        """Recognise what is larger than the link's limit before it is sent: its refusal would detach the link.

        Raises PoisonError, without a condition, as nobody but the link's own limit has refused it.
        """
        limit = (await self._limits()).message
        body = sum(map(len, message.body))
        if body + _PROPERTIES_BYTES <= limit:
            return
        size = _encoded_size(message)
        if size > limit:
            raise PoisonError(
                f"The message has {size} bytes, and the topic takes {limit} at most.", condition="", too_large=True
            )

    async def _send(self, transfer: Transfer, first: Event) -> float:
        """Returns the seconds until it was accepted, pauses included."""
        began = time.monotonic()
        for pause_s in (*self._rules.pauses_s, None):
            unused_s = began + self._rules.send_timeout_s - time.monotonic()
            left_s = self._rules.deadline.left_s(at_most=max(unused_s, 0.001))
            try:
                await self._sender.limits(left_s)
                # After the link was opened: nothing that takes time may be between this and the transfer.
                self._rules.clearance.check(first)
                await self._sender.send(transfer, left_s)
                break
            except RetryableError as error:
                if pause_s is None:
                    raise
                pause_s *= _BUSY_FACTOR if error.busy else 1
                if time.monotonic() - began + pause_s >= self._rules.send_timeout_s:
                    raise
            await asyncio.sleep(pause_s)
        return time.monotonic() - began

    def _accept(self, events: list[Event], duration_s: float) -> None:
        self._evidence.accepted(events)
        for event in events:
            self._ledger.add(event.partition_key, event.id)
        self._outcome.published += len(events)
        self._outcome.sends += 1
        self._outcome.accepted_after_rejection |= bool(self._outcome.rejected)
        instruments.accepted(events, duration_s)


def _fits(batch: ServiceBusMessageBatch, message: AmqpAnnotatedMessage) -> bool:
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True


def _encoded_size(message: AmqpAnnotatedMessage) -> int:
    """The bytes of a message as it is transferred, for one of 256 bytes or more."""
    batch = ServiceBusMessageBatch(2**31)
    empty = batch.size_in_bytes
    batch.add_message(message)
    return batch.size_in_bytes - empty - _BATCH_OVERHEAD_BYTES
