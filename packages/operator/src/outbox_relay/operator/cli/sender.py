"""Sends chunks of events in order; nothing more is sent for a partition key whose send failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from outbox_relay.operator.cli.servicebus_checks import STANDARD_BYTES
from outbox_relay.operator.cli.terminal import ExitCode
from relay.config.settings import OnPoison, Settings
from relay.core.errors import ConfigurationError, DestinationSettings, PoisonError, SendError, ServiceError
from relay.core.events import Event, Rejected, by_partition_key
from relay.core.ports import Publisher
from relay.core.remedy import Sentence
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge, rejected
from relay.servicebus import messages
from relay.servicebus.messages import Contract
from relay.servicebus.publisher import ServiceBusPublisher
from relay.servicebus.senders import Senders, senders
from relay.servicebus.transfers import alone, check_size

# A command has no retry policy of a host around it. These pauses cover a moment of throttling, not an outage.
_PAUSES_S = (0.5, 2.0)

# Consecutive failed keys after which the topic counts as down.
_OUTAGE = 3


@dataclass(slots=True)
class Sent:
    """The result of one chunk.

    Attributes:
        through: The events that were accepted or rejected, by partition key: the first of those given.
        rejected: Those of them that Service Bus will never accept.
    """

    through: dict[str, list[Event]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)

    @property
    def accepted(self) -> list[Event]:
        refused = {rejected.position for rejected in self.rejected}
        return [event for events in self.through.values() for event in events if event.position not in refused]


@dataclass(slots=True)
class Failure:
    """A partition key whose send failed: the error, and the number of its events that were not sent."""

    error: SendError
    unsent: int


class OrderedSender:
    """Keeps the order of each partition key across chunks, as the trigger's checkpoint does for the app.

    Attributes:
        failures: The partition keys whose sends failed.
        gave_up: No send succeeds, so another chunk would be pointless.
    """

    def __init__(self, publisher: Publisher, pauses_s: Sequence[float] = _PAUSES_S) -> None:
        self._publisher = publisher
        self._pauses_s = pauses_s
        self.failures: dict[str, Failure] = {}
        self.gave_up = False
        self._accepted = 0
        self._failed_in_a_row = 0

    async def send(self, events: Sequence[Event], *, stop_at_rejection: bool = False) -> Sent:
        """Publish a chunk, trying again what may succeed. Failed sends are in `failures`; they are not raised.

        Args:
            events: The chunk. In the result, each event's position is its place in here.
            stop_at_rejection: Events of a key after a rejected one are neither sent nor in the result.
        """
        sent = Sent()
        events = [event._replace(position=position) for position, event in enumerate(events)]
        to_publish = {}
        for key, its_events in by_partition_key(events).items():
            if key in self.failures:
                self.failures[key].unsent += len(its_events)
            else:
                to_publish[key] = its_events
        judge = Judge(OnPoison.PARK if stop_at_rejection else OnPoison.SKIP, needs_evidence=False)
        accepted = 0
        for pause in (*self._pauses_s, None):
            outcomes = await self._publisher.publish(to_publish, judge=judge)
            accepted += sum(outcome.published for outcome in outcomes)
            failed = [outcome for outcome in outcomes if outcome.error is not None]
            to_publish = self._take(outcomes, to_publish, sent)
            if not to_publish or any(isinstance(outcome.error, ConfigurationError) for outcome in failed):
                break
            if pause is not None:
                await asyncio.sleep(pause)
        self._accepted += accepted
        self._note(failed, accepted)
        return sent

    def _take(
        self, outcomes: list[KeyOutcome], published: dict[str, list[Event]], sent: Sent
    ) -> dict[str, list[Event]]:
        """Note what went through; returns the rest."""
        rest = {}
        for outcome in outcomes:
            events = published[outcome.partition_key]
            through = len(events) - outcome.unsent - len(outcome.held_back)
            sent.through.setdefault(outcome.partition_key, []).extend(events[:through])
            sent.rejected += outcome.rejected
            if outcome.unsent:
                rest[outcome.partition_key] = events[through:]
        return rest

    def _note(self, failed: list[KeyOutcome], accepted: int) -> None:
        for outcome in failed:
            if outcome.error is not None:
                self.failures[outcome.partition_key] = Failure(outcome.error, outcome.unsent)
        self._failed_in_a_row = len(failed) + (0 if accepted else self._failed_in_a_row)
        refused = any(isinstance(outcome.error, ConfigurationError) for outcome in failed)
        self.gave_up = refused or (accepted == 0 and self._failed_in_a_row >= _OUTAGE)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for the failures: 3 if the service is down, 1 if some partition keys failed."""
        if not self.failures:
            return ExitCode.OK
        return ExitCode.SERVICE if self.gave_up or self._accepted == 0 else ExitCode.FINDINGS

    def failures_data(self) -> list[dict[str, object]]:
        return [
            {"partitionKey": key, "unsent": failure.unsent, "error": str(failure.error)}
            for key, failure in self.failures.items()
        ]

    def failure_lines(self) -> list[Sentence]:
        return [
            Sentence(f"  {key!r}: {failure.unsent} not sent: ", failure.error.sentence)
            for key, failure in self.failures.items()
        ]


class Rehearsal:
    """Takes chunks as `OrderedSender` does, and sends nothing: it rejects what is too large for the topic.

    It connects for a message that some topics do not take, to ask this one for its limit.
    """

    def __init__(
        self,
        topic: Senders,
        message_of: Contract,
        *,
        timeout_s: float,
        stores_large: bool = False,
        named_by: DestinationSettings | None = None,
    ) -> None:
        """Create a rehearsal.

        Args:
            topic: Asked for the topic's limit, and for nothing else.
            message_of: The contract of the messages.
            timeout_s: Seconds to open a link.
            stores_large: Whether the contents of large events are stored elsewhere, so that none is too large.
            named_by: Where the settings name the topic or queue, for remedies.
        """
        self._topic = topic
        self._message_of = message_of
        self._timeout_s = timeout_s
        self._stores_large = stores_large
        self._named_by = named_by or DestinationSettings()
        self._limit: int | None = None

    async def send(self, events: Sequence[Event]) -> Sent:
        """Return the result of sending a chunk to a topic that refuses nothing for another reason.

        Raises:
            ServiceError: The topic did not say what it takes.
        """
        sent = Sent()
        for position, event in enumerate(events):
            placed = event._replace(position=position)
            sent.through.setdefault(event.partition_key, []).append(placed)
            if not self._stores_large and (refusal := await self._refusal(placed)) is not None:
                sent.rejected.append(rejected(placed, refusal))
        return sent

    async def _refusal(self, event: Event) -> PoisonError | None:
        transfer = alone(event, self._message_of)
        if len(transfer.payload) <= STANDARD_BYTES:
            return None
        try:
            check_size(transfer, await self._largest())
        except PoisonError as error:
            return error
        return None

    async def _largest(self) -> int:
        if self._limit is None:
            try:
                async with self._topic.acquire() as sender:
                    self._limit = (await sender.limits(self._timeout_s)).message
            except SendError as error:
                raise ServiceError(
                    "an event may be too large, and the topic did not say what it takes: ",
                    error.naming(self._named_by).sentence,
                ) from error
        return self._limit


@asynccontextmanager
async def ordered_sender(settings: Settings, *, with_original_id: bool = False) -> AsyncIterator[OrderedSender]:
    """A sender with the app's settings and the app's publisher; with the property `originalId` on request."""
    publisher = ServiceBusPublisher.from_settings(settings, _contract(settings, with_original_id))
    try:
        yield OrderedSender(publisher)
    finally:
        await publisher.close()


@asynccontextmanager
async def rehearsal(settings: Settings, *, with_original_id: bool = False) -> AsyncIterator[Rehearsal]:
    """A rehearsal of what `ordered_sender` would send."""
    topic = senders(settings.servicebus)
    try:
        yield Rehearsal(
            topic,
            _contract(settings, with_original_id),
            timeout_s=settings.servicebus.send_timeout_s,
            stores_large=settings.policy.claim_check is not None,
            named_by=settings.servicebus.named_by,
        )
    finally:
        await topic.close()


def _contract(settings: Settings, with_original_id: bool) -> Contract:
    message_of = messages.contract(settings.policy.cloudevents_source, settings.selection.fields)
    return messages.with_original_id(message_of) if with_original_id else message_of
