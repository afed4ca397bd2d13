"""A source, a publisher and a quarantine in memory, without any Azure package.

They pass the contract suites in `tests/contracts`, as the adapters for Azure do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.errors import QuarantineError, RetryableError, SendError, SourceError
from relay.events import Document, Event, EventName, Reason, Received, Rejected, read_event
from relay.fence import ALWAYS, Clearance
from relay.holds import Holds
from relay.results import KeyOutcome


class InMemorySource:
    """Documents in the order given; a document's `committedAt` says when it was committed, in seconds since 1970.

    Attributes:
        passed: The events that the checkpoint has passed.
        broken: Nothing can be read.
    """

    def __init__(self, event_type: str = "domainEvent") -> None:
        self._event_type = event_type
        self.passed: set[EventName] = set()
        self.broken = False

    def read(self, batch: Sequence[Document], /) -> Received:
        self._check()
        received = Received()
        for document in batch:
            if document.get("type") != self._event_type:
                received.ignored += 1
                continue
            position = len(received.events) + len(received.rejected)
            event = read_event(document, position, committed_at=document.get("committedAt"))
            if isinstance(event, Event):
                received.events.append(event)
            else:
                received.rejected.append(event)
        return received

    async def settled(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        self._check()
        names = {item.position: (item.document.get("partitionKey"), item.document.get("id")) for item in items}
        return frozenset(position for position, name in names.items() if name in self.passed)

    def _check(self) -> None:
        if self.broken:
            raise SourceError("the source is broken")


class InMemoryPublisher:
    """A topic that drops duplicates, and refuses what it is configured to.

    Attributes:
        accepted: Ids by partition key, in the order of acceptance.
        refused: Ids of the events whose content it refuses, with the condition of each.
        broken: The error with which every send fails, if any.
    """

    destination = "in-memory"

    def __init__(self) -> None:
        self.accepted: dict[str, list[str]] = {}
        self.refused: dict[str, str] = {}
        self.broken: SendError | None = None
        self.closed = False

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
        outcomes = []
        for key, its_events in events.items():
            outcome = KeyOutcome(key)
            for number, event in enumerate(its_events):
                if stop_at_rejection and outcome.rejected:
                    outcome.held_back = list(its_events[number:])
                    break
                try:
                    self._publish(event, outcome, clearance, lasting)
                except SendError as error:
                    outcome.error = error
                    outcome.unsent = len(its_events) - number
                    break
            outcomes.append(outcome)
        return outcomes

    def _publish(self, event: Event, outcome: KeyOutcome, clearance: Clearance, lasting: bool) -> None:
        if self.has_accepted(event):
            outcome.already_published += 1
            return
        if event.name in clearance.superseded:
            outcome.superseded += 1
            return
        clearance.check(event)
        if self.broken is not None:
            raise self.broken
        condition = self.refused.get(event.id)
        if condition is not None and not lasting:
            raise RetryableError(f"{event.id!r} is refused ({condition})", refused=True)
        if condition is not None:
            outcome.rejected.append(Rejected.of(event, Reason.MESSAGE_REFUSED, "refused", condition))
            return
        self.accepted.setdefault(event.partition_key, []).append(event.id)
        outcome.published += 1
        outcome.sends += 1
        outcome.accepted_after_rejection |= bool(outcome.rejected)

    def has_accepted(self, event: Event, /) -> bool:
        return event.id in self.accepted.get(event.partition_key, ())

    async def close(self) -> None:
        self.closed = True


class InMemoryQuarantine:
    """Keeps rejected documents, parked keys and orders.

    Attributes:
        records: What was stored, in order, each document once.
        parked: Parked partition keys.
        ordered: Events that an operator wants set aside.
        broken: Nothing can be read or written.
    """

    def __init__(self) -> None:
        self.records: list[Rejected] = []
        self.parked: set[str] = set()
        self.ordered: set[EventName] = set()
        self.broken = False
        self.closed = False

    async def holds(self) -> Holds:
        self._check()
        return Holds(frozenset(self.parked), frozenset(self.ordered))

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, *, park: bool) -> None:
        if rejected:
            self._check()
        for item in rejected:
            key = item.partition_key
            if park and key is not None:
                if item.reason is Reason.KEY_PARKED and key not in self.parked:
                    raise QuarantineError(f"the partition key {key!r} was released in the meantime")
                self.parked.add(key)
            if not any(item.document == record.document for record in self.records):
                self.records.append(item)
            if item.reason is Reason.SET_ASIDE and key is not None:
                self.ordered.discard((key, item.id))

    async def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.broken:
            raise QuarantineError("the quarantine is broken")
