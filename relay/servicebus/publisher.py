"""Publishes events by partition key: many keys at a time, each key strictly in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from relay.deadline import Deadline
from relay.errors import RefusedAlikeError, SendError
from relay.events import Event
from relay.evidence import Evidence
from relay.fence import ALWAYS, Clearance
from relay.ledger import AcceptedLedger
from relay.results import KeyOutcome
from relay.servicebus.messages import Contract
from relay.servicebus.senders import Senders, senders
from relay.servicebus.turn import PAUSES_S, Rules, Turn
from relay.settings import Settings


class ServiceBusPublisher:
    """Sends partition keys concurrently, each one strictly in order."""

    def __init__(
        self,
        senders: Senders,
        message_of: Contract,
        ledger: AcceptedLedger,
        *,
        send_timeout_s: float,
        attempt_timeout_s: float,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`pauses_s`: seconds before each further try of a transfer, ten times as long if the service is busy."""
        self._senders = senders
        self._message_of = message_of
        self._ledger = ledger
        self._evidence = Evidence()
        self._send_timeout_s = send_timeout_s
        self._attempt_timeout_s = attempt_timeout_s
        self._pauses_s = pauses_s

    @classmethod
    def from_settings(cls, settings: Settings, message_of: Contract) -> ServiceBusPublisher:
        """A publisher to the topic, with a ledger of its own. Nothing is connected until the first send."""
        return cls(
            senders(settings),
            message_of,
            AcceptedLedger(),
            send_timeout_s=settings.send_timeout_s,
            attempt_timeout_s=settings.attempt_timeout_s,
        )

    async def publish(
        self,
        events: Mapping[str, Sequence[Event]],
        /,
        *,
        clearance: Clearance = ALWAYS,
        isolate: bool = False,
        stop_at_rejection: bool = False,
        lasting: bool = False,
    ) -> list[KeyOutcome]:
        """Publish every partition key's events, as `ports.Publisher` describes it."""
        rules = Rules(
            Deadline.after(self._attempt_timeout_s),
            self._send_timeout_s,
            clearance,
            isolate,
            stop_at_rejection,
            lasting,
            self._pauses_s,
        )
        outcomes = [KeyOutcome(key) for key in events]
        waiting = iter(zip(outcomes, events.values(), strict=True))
        outage = _Outage(threshold=2 * self._senders.size)

        async def work() -> None:
            for outcome, its_events in waiting:
                await self._take_turn(outcome, its_events, rules, outage)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._senders.size, len(events))):
                workers.create_task(work())
        return outcomes

    @property
    def destination(self) -> str:
        """The topic's name."""
        return self._senders.topic

    def has_accepted(self, event: Event) -> bool:
        """Whether the ledger has this event as accepted."""
        return self._ledger.holds(event.partition_key, event.id)

    async def close(self) -> None:
        """Close the senders."""
        await self._senders.close()

    async def _take_turn(
        self, outcome: KeyOutcome, events: Sequence[Event], rules: Rules, outage: _Outage
    ) -> None:
        holds = self._ledger.holds
        unknown = [event for event in events if not holds(event.partition_key, event.id)]
        outcome.already_published = len(events) - len(unknown)
        superseded = rules.clearance.superseded
        pending = [event for event in unknown if event.name not in superseded] if superseded else unknown
        outcome.superseded = len(unknown) - len(pending)
        if not pending:
            return
        try:
            outage.check()
            async with self._senders.acquire() as sender:
                turn = Turn(sender, self._message_of, self._ledger, self._evidence, rules, outcome)
                await turn.send_in_order(pending)
        except SendError as error:
            outcome.error = error
            outcome.unsent = len(pending) - outcome.published - len(outcome.rejected)
            outage.failed(error)
        else:
            outcome.held_back = pending[outcome.published + len(outcome.rejected) :]
            refused = [each for each in outcome.rejected if each.condition is not None]
            if refused and not outcome.published:
                outage.failed(RefusedAlikeError(f"nothing of theirs was accepted: {refused[0].detail}"))
            else:
                outage.succeeded()


class _Outage:
    """Ends an attempt early when nothing is accepted any more.

    Partial failure is normal, and the other partition keys are tried. But once so many have failed in a row that
    it cannot be chance, trying thousands more, each up to its timeout, would outlast the attempt.
    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._failures_in_a_row = 0
        self._last: SendError | None = None

    def check(self) -> None:
        if self._last is not None and self._failures_in_a_row >= self._threshold:
            raise type(self._last)(f"not tried, as {self._threshold} partition keys in a row failed: {self._last}")

    def failed(self, error: SendError) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row <= self._threshold:
            self._last = error

    def succeeded(self) -> None:
        self._failures_in_a_row = 0
