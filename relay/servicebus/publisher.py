"""Publishes events by partition key: many keys at a time, each key strictly in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from relay.config.settings import Settings
from relay.core.deadline import Deadline
from relay.core.errors import ContentError, DefectError, DestinationSettings, NotTriedError, SendError, first_line
from relay.core.events import Event, Rejected
from relay.core.evidence import AcceptedLedger, Evidence
from relay.core.fence import ALWAYS, Clearance
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge
from relay.servicebus.key_sender import PAUSES_S, AttemptContext, KeySender, Probe, PublisherState
from relay.servicebus.messages import Contract
from relay.telemetry.instruments import BoundedActions
from relay.telemetry.stream import logger_of

if TYPE_CHECKING:
    from relay.large.claims import Claims
    from relay.servicebus.senders import Senders

logger = logger_of(__name__)

_JUDGE = Judge()

# Seconds after the deadline at which publishing is cut off. Each send ends at the deadline by itself, but not a
# wait for a sender that another invocation has. What follows leaves this much of the attempt's margin.
_CUT_OFF_S = 2.0


class ServiceBusPublisher:
    """Sends partition keys concurrently, each one strictly in order; a `ports.Publisher`."""

    def __init__(
        self,
        senders: Senders,
        message_of: Contract,
        ledger: AcceptedLedger,
        *,
        send_timeout_s: float,
        attempt_timeout_s: float,
        duplicate_window_s: float = 0.0,
        pauses_s: Sequence[float] = PAUSES_S,
        claims: Claims | None = None,
        named_by: DestinationSettings | None = None,
    ) -> None:
        """Create a publisher. Makes no connection.

        Args:
            send_timeout_s: One transfer, from the first try to the last, in seconds, besides those that its bytes
                take.
            attempt_timeout_s: One call of `publish` that is given no deadline, in seconds.
            duplicate_window_s: The topic's duplicate detection window, in seconds; 0 if nothing may be repeated.
            pauses_s: Seconds before each further try of a transfer, ten times as long if the service is busy.
            claims: What stores the contents of large events; None if these are set aside.
            named_by: Where the settings name the topic or queue, for remedies.
        """
        self._named_by = named_by or DestinationSettings()
        self._senders = senders
        self._claims = claims
        evidence = Evidence(duplicate_window_s)
        self._shared = PublisherState(
            message_of, ledger, evidence, Probe(evidence, message_of), BoundedActions(), claims
        )
        self._send_timeout_s = send_timeout_s
        self._attempt_timeout_s = attempt_timeout_s
        self._pauses_s = (*pauses_s, None)

    @classmethod
    def from_settings(cls, settings: Settings, message_of: Contract) -> ServiceBusPublisher:
        """Create a publisher to the topic, with its own ledger. It connects at the first send."""
        # The SDK is a third of what the app would import, and the host gives a worker ten seconds to start.
        from relay.servicebus.senders import senders

        return cls(
            senders(settings.servicebus),
            message_of,
            AcceptedLedger(),
            send_timeout_s=settings.servicebus.send_timeout_s,
            attempt_timeout_s=settings.policy.attempt_timeout_s,
            duplicate_window_s=settings.servicebus.duplicate_window_s,
            claims=_claims(settings, message_of),
            named_by=settings.servicebus.named_by,
        )

    async def publish(
        self,
        events: Mapping[str, Sequence[Event]],
        /,
        *,
        judge: Judge = _JUDGE,
        clearance: Clearance = ALWAYS,
        deadline: Deadline | None = None,
        isolate: bool = False,
        rotate: int = 0,
    ) -> list[KeyOutcome]:
        rules = AttemptContext(
            deadline or Deadline.after(self._attempt_timeout_s),
            self._send_timeout_s,
            judge,
            clearance,
            isolate,
            self._shared.evidence.fresh,
            self._pauses_s,
        )
        outcomes = {key: KeyOutcome(key) for key in events}
        outage = _Outage(threshold=2 * self._senders.size)
        waiting = iter(_rotated(list(events), rotate * outage.threshold))

        async def work() -> None:
            for key in waiting:
                await self._take_turn(outcomes[key], events[key], rules, outage)

        cut_off_s = rules.deadline.ends - time.monotonic() + _CUT_OFF_S
        with suppress(TimeoutError):
            async with asyncio.timeout(cut_off_s), asyncio.TaskGroup() as workers:
                # This task is one of the workers.
                for _ in range(min(self._senders.size, len(events)) - 1):
                    workers.create_task(work())
                await work()
        for key in waiting:
            # The deadline passed before a worker reached this key.
            outcomes[key].error, outcomes[key].unsent = rules.deadline.passed(), len(events[key])
        return list(outcomes.values())

    @property
    def destination(self) -> str:
        return self._senders.topic

    def has_accepted(self, event: Event) -> bool:
        return self._shared.ledger.holds(event.partition_key, event.id)

    def note_set_aside(self, items: Iterable[Rejected], /) -> None:
        for item in items:
            if item.name is not None:
                self._shared.evidence.forget(item.name)

    async def close(self) -> None:
        try:
            await self._senders.close()
        finally:
            if self._claims is not None:
                await self._claims.close()

    async def _take_turn(
        self, outcome: KeyOutcome, events: Sequence[Event], rules: AttemptContext, outage: _Outage
    ) -> None:
        try:
            await self._send(outcome, events, rules, outage)
        except asyncio.CancelledError:
            outcome.error, outcome.unsent = rules.deadline.passed(), len(events) - _done(outcome)
            raise
        if outcome.error is not None:
            outcome.unsent = len(events) - _done(outcome)
            if not isinstance(outcome.error, ContentError):
                outage.failed(outcome.error)
            return
        if outcome.rejected:
            outcome.held_back = events[_done(outcome) :]
        if outcome.published:
            outage.succeeded()

    async def _send(
        self, outcome: KeyOutcome, events: Sequence[Event], rules: AttemptContext, outage: _Outage
    ) -> None:
        """Send a key's events: together, or one at a time to find the one at which an unforeseen error happens."""
        parts = [events]
        for part in parts:
            try:
                outage.check()
                async with self._senders.acquire() as sender:
                    await KeySender(sender, self._shared, rules, outcome).send_in_order(part)
            except SendError as error:
                outcome.error = error.naming(self._named_by)
                return
            except Exception as error:
                # Whatever the error, the other partition keys continue, and this one comes again.
                if outage.is_new(error):
                    logger.exception("a partition key failed in a way that the relay does not foresee")
                left = events[_done(outcome) :] if part is events else part
                if rules.isolate and len(left) > 1:
                    # The loop goes on with them.
                    parts += [[event] for event in left]
                    continue
                defect = f"{first_line(error)}. This is a defect of the relay: please report it."
                outcome.error = DefectError(defect)
                outcome.blocked_by = left[0].id if len(left) == 1 else None
                return


def _claims(settings: Settings, message_of: Contract) -> Claims | None:
    if settings.policy.claim_check is None:
        return None
    from relay.large.blobs import Blobs
    from relay.large.claims import Claims

    return Claims(Blobs(settings.policy.claim_check), message_of)


def _done(outcome: KeyOutcome) -> int:
    return outcome.published + len(outcome.rejected)


def _rotated(keys: list[str], by: int) -> list[str]:
    """Return the keys, beginning with another one at each attempt.

    So those tried in vain do not hide the others.
    """
    start = by % len(keys) if keys else 0
    return keys[start:] + keys[:start]


class _Outage:
    """Ends an attempt early when nothing is accepted.

    Partial failure is normal, and the other partition keys are tried. But once too many have failed in a row for
    chance, trying thousands more, each up to its timeout, would outlast the attempt. A key whose
    events are set aside is no failure: that is settled. A content that cannot be stored says nothing of the topic.
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self._failures_in_a_row = 0
        self._last: SendError | None = None
        self._unforeseen: set[type[Exception]] = set()

    def check(self) -> None:
        """Raise NotTriedError if too many partition keys have failed in a row."""
        if self._last is not None and self._failures_in_a_row >= self.threshold:
            raise NotTriedError(
                f"not tried, as {self.threshold} partition keys in a row failed: {self._last}"
            ) from self._last

    def failed(self, error: SendError) -> None:
        self._failures_in_a_row += 1
        if not isinstance(error, NotTriedError):
            self._last = error

    def is_new(self, unforeseen: Exception) -> bool:
        """Return True if this exception is the first of its type.

        A thousand keys that fail with it log one traceback.
        """
        known = type(unforeseen) in self._unforeseen
        self._unforeseen.add(type(unforeseen))
        return not known

    def succeeded(self) -> None:
        self._failures_in_a_row = 0
