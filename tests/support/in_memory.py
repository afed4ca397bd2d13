"""A source, a publisher and a quarantine in memory, without any Azure package.

They pass the contract suites in `tests/contracts`, as the adapters for Azure do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from relay.core.deadline import Deadline
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.errors import PoisonError, QuarantineError, SendError, SourceError
from relay.core.events import Event, EventName, Reason, Received, Rejected, read_event
from relay.core.evidence import Evidence
from relay.core.fence import ALWAYS, Clearance
from relay.core.holds import Holds, Order
from relay.core.place import Place
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge, Ruling, error_of, rejected

_JUDGE = Judge()


class InMemorySource:
    """Documents in the order given; a document's `committedAt` says when it was committed, in seconds since 1970.

    Attributes:
        passed: The events that the checkpoint has passed.
        passed_lsn: It has passed every document whose `_lsn` is not above this.
        broken: Nothing can be read.
    """

    def __init__(self, event_type: str = "domainEvent") -> None:
        self._event_type = event_type
        self.passed: set[EventName | None] = set()
        self.passed_lsn = 0
        self.broken = False

    async def read(self, batch: Sequence[StoredDocument], /) -> Received:
        self._check()
        received = Received()
        for document in batch:
            if document.get("type") != self._event_type:
                received.ignored += 1
                continue
            position = len(received.events) + len(received.rejected)
            event = read_event(SourceDocument.plain(document), position, committed_at=document.get("committedAt"))
            if isinstance(event, Event):
                received.events.append(event)
            else:
                received.rejected.append(event)
        return received

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        self._check()
        return frozenset(item.position for item in items if item.name in self.passed or self._is_passed(item))

    def _is_passed(self, item: Event | Rejected) -> bool:
        lsn = item.document.lsn
        return lsn is not None and lsn <= self.passed_lsn

    def _check(self) -> None:
        if self.broken:
            raise SourceError("the source is broken")


class InMemoryPublisher:
    """A topic that drops duplicates, and refuses what it is configured to.

    Attributes:
        accepted: Ids by partition key, in the order of acceptance.
        refused: Ids of the events whose content it refuses, with the condition of each.
        refuses_everything: The condition with which it refuses every message, if it does.
        broken: The error with which every send fails, if any.
    """

    destination = "in-memory"

    def __init__(self, accepted: dict[str, list[str]] | None = None) -> None:
        """`accepted` is what the topic has already, from another process."""
        self.accepted: dict[str, list[str]] = {} if accepted is None else accepted
        self.refuses_everything: str | None = None
        self._known: set[EventName] = set()
        self.refused: dict[str, str] = {}
        self.broken: SendError | None = None
        self.closed = False
        self._evidence = Evidence(600)

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
        outcomes = []
        fresh = self._evidence.fresh
        for key, its_events in events.items():
            outcome = KeyOutcome(key)
            for number, event in enumerate(its_events):
                if judge.stops_behind and outcome.rejected:
                    outcome.held_back = list(its_events[number:])
                    break
                try:
                    self._publish(event, outcome, clearance, judge, fresh)
                except SendError as error:
                    outcome.error = error
                    outcome.unsent = len(its_events) - number
                    break
            outcomes.append(outcome)
        return outcomes

    def _publish(
        self, event: Event, outcome: KeyOutcome, clearance: Clearance, judge: Judge, fresh_before: int
    ) -> None:
        clearance.check(event)
        if self.broken is not None:
            raise self.broken
        condition = self.refuses_everything or self.refused.get(event.id)
        if condition is not None:
            may_repeat = self._evidence.witness() is not None and not self.refuses_everything
            if may_repeat and self._evidence.wants_repeat(event):
                self._evidence.repeated()
            refusal = PoisonError("refused", condition=condition)
            verdict = judge.refused(refusal, self._evidence.refused(event, refusal, fresh_before))
            if verdict.ruling is not Ruling.SET_ASIDE:
                outcome.blocked_by = event.id
                raise error_of(verdict, event, refusal)
            self._evidence.forget(event.name)
            outcome.rejected.append(rejected(event, refusal))
            return
        of_key = self.accepted.setdefault(event.partition_key, [])
        if event.id not in of_key:
            of_key.append(event.id)
        self._known.add(event.name)
        self._evidence.accepted([event], witness=event)
        outcome.published += 1
        outcome.sends += 1

    def has_accepted(self, event: Event, /) -> bool:
        return event.name in self._known

    def note_set_aside(self, items: Iterable[Rejected], /) -> None:
        for item in items:
            if item.name is not None:
                self._evidence.forget(item.name)

    async def close(self) -> None:
        self.closed = True


class InMemoryQuarantine:
    """Keeps rejected documents, parked keys and orders.

    Attributes:
        records: What was stored, in order, each document once.
        parked: Parked partition keys, each with the place of the event that parked it.
        ordered: Events that an operator wants set aside.
        held: Orders that are carried out, by event.
        reads: How often somebody asked what is held back.
        broken: Nothing can be read or written.
    """

    def __init__(self) -> None:
        self.reads = 0
        self.records: list[Rejected] = []
        self.parked: dict[str, Place | None] = {}
        self.ordered: set[EventName] = set()
        self.held: dict[EventName, Order] = {}
        self._parked_here: dict[str, Place | None] = {}
        self.broken = False
        self.closed = False

    async def holds(self) -> Holds:
        self._check()
        self.reads += 1
        self._parked_here = {key: place for key, place in self._parked_here.items() if key in self.parked}
        pending = {name: (Order(),) for name in self.ordered}
        return Holds(dict(self.parked), {**{name: (order,) for name, order in self.held.items()}, **pending})

    def parked_here(self) -> Mapping[str, Place | None]:
        return dict(self._parked_here)

    async def store(
        self,
        rejected: Sequence[Rejected],
        /,
        invocation_id: str,
        *,
        park: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if rejected:
            self._check()
        for item in rejected:
            check()
            key = item.partition_key
            if park and key is not None:
                if item.reason is Reason.KEY_PARKED and key not in self.parked:
                    raise QuarantineError(f"the partition key {key!r} was released in the meantime")
                self._parked_here[key] = self.parked.setdefault(key, item.document.place)
            if not any(item.document == record.document for record in self.records):
                self.records.append(item)
            if item.name is not None and item.reason is not Reason.KEY_PARKED:
                self.ordered.discard(item.name)
                if item.name not in self.held or self.held[item.name].place != item.document.place:
                    self.held[item.name] = Order(True, item.document.place)

    async def note_passed(self, orders: Mapping[EventName, Order], /, at: float) -> None:
        self._check()
        for name, order in orders.items():
            if self.held.get(name) == order:
                self.held[name] = replace(order, passed_at=at)

    async def remove(self, orders: Mapping[EventName, Order], /) -> None:
        self._check()
        for name, order in orders.items():
            if self.held.get(name) == order:
                del self.held[name]

    async def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.broken:
            raise QuarantineError("the quarantine is broken")
