"""One partition key's turn: its events in order, size-bounded batches, one after another, through one sender."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from relay.core.deadline import SLOWEST_BYTES_S, Deadline
from relay.core.documents import SourceDocument
from relay.core.errors import PoisonError, RetryableError, SendError, StaleClearanceError
from relay.core.events import Event
from relay.core.evidence import AcceptedLedger, Evidence
from relay.core.fence import Clearance
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge, Ruling, error_of, rejected
from relay.servicebus.messages import Contract
from relay.servicebus.transfers import LinkLimits, Sender, Transfer, alone, check_size, in_batches
from relay.telemetry import instruments
from relay.telemetry.instruments import BoundedActions

if TYPE_CHECKING:
    from relay.large.claims import Claims

# Enough for a dropped connection or a detached link. What lasts longer is for the trigger's retry policy.
PAUSES_S = (0.2, 0.8)
# A throttled namespace asks for longer ones.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling
_BUSY_FACTOR = 10

# An accepted event is kept for a probe if the messages of its transfer are no larger than this on average: the
# largest message of the Standard tier. One event is kept in a process.
_WITNESS_BYTES = 262_144

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """How an attempt sends.

    Attributes:
        send_timeout_s: One transfer, from the first try to the last, in seconds, besides those that its bytes take
            at `SLOWEST_BYTES_S`.
        isolate: Whether a batch that the service answers with an error is taken apart, though the error may pass,
            to find the one event that it is about.
        fresh_before: Number of transfers accepted for the first time before it began.
        pauses_s: Seconds before each further try of a transfer, and None after the last.
    """

    deadline: Deadline
    send_timeout_s: float
    judge: Judge
    clearance: Clearance
    isolate: bool
    fresh_before: int
    pauses_s: Sequence[float | None]


class Probe:
    """Repeats an event that was accepted before, to see whether the service accepts anything at the moment.

    A refusal is evidence against an event only while the service accepts something else. In a page whose other
    events were all accepted by an earlier attempt, nothing else is left to be sent. So an event that this process
    had accepted a moment ago is sent again, whole: the topic drops it as a duplicate, and no subscriber sees it.
    https://learn.microsoft.com/azure/service-bus-messaging/duplicate-detection

    One for a publisher: many partition keys that are in doubt share a probe.
    """

    def __init__(self, evidence: Evidence, message_of: Contract) -> None:
        self._evidence = evidence
        self._message_of = message_of
        self._one_at_a_time = asyncio.Lock()
        self._made = 0
        self._claim: tuple[Event, Contract] | None = None

    def keep_claim(self, transfer: Transfer) -> Event:
        """Return the large event of an accepted claim, to be repeated as that: nothing else of it is kept."""
        event = transfer.events[-1]._replace(data={}, document=SourceDocument({}, {}), body=None)
        self._claim = event, transfer.message_of
        return event

    async def repeat(self, sender: Sender, doubted: Event, timeout_s: float) -> None:
        """Note whether the service accepts a repeat, unless anything was accepted since `doubted` was refused.

        Concurrent callers share one repeat. Otherwise each of them would in turn wait for a service that does not
        answer.
        """
        made = self._made
        async with self._one_at_a_time:
            if self._made == made and self._evidence.wants_repeat(doubted):
                await self._send(sender, timeout_s)

    async def after_an_end(self, sender: Sender, timeout_s: float) -> None:
        """Let the service accept something, if it does, after a transfer has ended its link alone.

        The sender takes a second end for this transfer's fault only if another one was accepted meanwhile.
        """
        if self._one_at_a_time.locked():
            # The other probe's result counts here, too. In an outage, each would wait for those before it.
            return
        async with self._one_at_a_time:
            await self._send(sender, timeout_s)

    async def _send(self, sender: Sender, timeout_s: float) -> None:
        witness = self._evidence.witness()
        if witness is None:
            return

        def may_send() -> None:
            if self._evidence.witness() is None:
                raise StaleClearanceError("the event to repeat may not be known to the topic any more")

        message_of = self._message_of
        if self._claim is not None and self._claim[0] is witness:
            message_of = self._claim[1]
        try:
            await sender.send(alone(witness, message_of), timeout_s, may_send, self._evidence.repeated)
        except SendError as error:
            logger.debug("the repeat of an accepted event was not accepted: %s", str(error))
        else:
            self._evidence.repeated()
        finally:
            self._made += 1


@dataclass(frozen=True, slots=True)
class PublisherState:
    """The state that a publisher's turns share: the message contract, and facts about the topic.

    Attributes:
        claims: What stores the contents of large events; None if these are set aside.
    """

    message_of: Contract
    ledger: AcceptedLedger
    evidence: Evidence
    probe: Probe
    actions: BoundedActions
    claims: Claims | None


class KeySender:
    """One partition key's way through one sender, from its first to its last batch."""

    def __init__(self, sender: Sender, shared: PublisherState, rules: AttemptContext, outcome: KeyOutcome) -> None:
        self._sender = sender
        self._shared = shared
        self._rules = rules
        self._outcome = outcome

    async def send_in_order(self, events: Sequence[Event]) -> None:
        """Send `events`, each transfer after the one before it was accepted. Raises SendError for one that fails.

        The halves of a refused batch are sent in its place, until the culprit is alone.
        """
        limits = self._sender.known_limits or await self._limits()
        # The last one is next; its transfers are encoded one by one.
        left = [in_batches(events, self._shared.message_of, limits.batch)]
        while left:
            transfers = left.pop()
            for transfer in transfers:
                if self._outcome.rejected and self._rules.judge.stops_behind:
                    return
                if transfer.is_batch:
                    if await self._send_batch(transfer):
                        continue
                    limits = self._sender.known_limits or await self._limits()
                    left += [transfers, *self._halves(transfer, limits)]
                    break
                if (claim := await self._send_alone(transfer, limits)) is not None:
                    left += [transfers, iter((claim,))]
                    break

    def _halves(self, batch: Transfer, limits: LinkLimits) -> Iterator[Iterator[Transfer]]:
        """Yield the transfers of the second half of a batch, then those of the first."""
        middle = len(batch.events) // 2
        for half in (batch.events[middle:], batch.events[:middle]):
            yield in_batches(half, self._shared.message_of, limits.batch)

    async def _limits(self) -> LinkLimits:
        return await self._sender.limits(self._left_s())

    def _left_s(self) -> float:
        """Return the seconds for one step. Raises RetryableError at the end of the attempt."""
        return self._rules.deadline.left_s(at_most=self._rules.send_timeout_s)

    async def _send_batch(self, batch: Transfer) -> bool:
        """Return False if the batch was refused whole, and has to be taken apart."""
        try:
            duration_s = await self._send(batch)
        except PoisonError:
            return False
        except RetryableError as error:
            if not error.refused or not (self._rules.isolate or error.ended_alone):
                raise
            return False
        self._accept(batch, duration_s)
        return True

    async def _send_alone(self, transfer: Transfer, limits: LinkLimits) -> Transfer | None:
        """Send one event, or set it aside. Returns the claim to send in its place if it is too large."""
        (event,) = transfer.events
        try:
            check_size(transfer, limits.message)
            if self._shared.evidence.wants_repeat(event):
                await self._shared.probe.repeat(self._sender, event, self._left_s())
            duration_s = await self._send(transfer)
        except PoisonError as error:
            claims = self._shared.claims
            is_whole = transfer.message_of is self._shared.message_of
            if claims is None or not error.too_large or not is_whole:
                self._judge(event, error)
                return None
        except RetryableError as error:
            if error.refused:
                self._outcome.blocked_by = event.id
            raise
        else:
            self._accept(transfer, duration_s)
            return None
        rules = self._rules
        claim = await claims.claim(event, rules.send_timeout_s, rules.deadline.left_s(rules.deadline.lasts_s))
        return alone(event, lambda _: claim)

    def _judge(self, event: Event, refusal: PoisonError) -> None:
        """Set the event aside, or stop here. Raises the error of a verdict to wait."""
        history = self._shared.evidence.refused(event, refusal, self._rules.fresh_before)
        verdict = self._rules.judge.refused(refusal, history)
        if verdict.ruling is Ruling.SET_ASIDE:
            self._shared.evidence.forget(event.name)
            self._outcome.rejected.append(rejected(event, refusal))
            return
        self._outcome.blocked_by = event.id
        raise error_of(verdict, event, refusal) from refusal

    async def _send(self, transfer: Transfer) -> float:
        """Send a transfer, and return the seconds until it was accepted, pauses included."""
        began = time.monotonic()
        rules = self._rules
        deadline = rules.deadline
        limit_s = unused_s = rules.send_timeout_s + len(transfer.payload) // SLOWEST_BYTES_S
        may_send = partial(rules.clearance.check, transfer.events[0])
        accepted_late = partial(self._accept_late, transfer, began)
        for pause_s in rules.pauses_s:
            wait_s = deadline.left_s(deadline.lasts_s)
            left_s = min(wait_s, unused_s)
            try:
                await self._sender.send(transfer, left_s, may_send, accepted_late, wait_s)
                break
            except RetryableError as error:
                if pause_s is None or (error.refused and error.ended_alone):
                    raise
                if error.ended_alone:
                    await self._shared.probe.after_an_end(self._sender, left_s)
                pause_s *= _BUSY_FACTOR if error.busy else 1
                if time.monotonic() - began + pause_s >= limit_s:
                    raise
            await asyncio.sleep(pause_s)
            unused_s = max(began + limit_s - time.monotonic(), 0.001)
        return time.monotonic() - began

    def _accept_late(self, transfer: Transfer, began: float) -> None:
        """Record events accepted after their attempt, or their turn, had given them up."""
        shared, events = self._shared, transfer.events
        shared.evidence.accepted(events)
        shared.ledger.add(events)
        instruments.accepted(events, time.monotonic() - began, shared.actions)

    def _accept(self, transfer: Transfer, duration_s: float) -> None:
        shared, outcome, events = self._shared, self._outcome, transfer.events
        number, witness = len(events), None
        if transfer.message_of is not shared.message_of:
            witness = shared.probe.keep_claim(transfer)
        elif len(transfer.payload) <= _WITNESS_BYTES * number:
            witness = events[-1]
        shared.evidence.accepted(events, witness)
        shared.ledger.add(events)
        outcome.published += number
        outcome.sends += 1
        instruments.accepted(events, duration_s, shared.actions)
