"""The query of a page's address: the choice of events, and the records that are selected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from relay.core.errors import UsageError
from relay_operator.console.model import EventState, Snapshot, Tracked
from relay_operator.console.recent import MOST
from relay_operator.outcomes import Outcome

STAGES = (*map(str, EventState), str(Outcome.RELEASED))
"""The stages that a reader can choose: the states of an event, and `released`, whatever its state is by now."""

MOST_RECORDS = 100
"""Maximum number of records that are selected at once: their ids must fit into an address."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A choice among the latest events. Each of its texts is empty if it chooses nothing.

    Attributes:
        stage: One of STAGES.
        id, action: A part of the event's id or action, whatever its case.
    """

    stage: str = ""
    id: str = ""
    action: str = ""

    def __bool__(self) -> bool:
        return bool(self.stage or self.id or self.action)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> EventFilter:
        """Read `stage`, `id` and `action` of the query of an address. A blank value counts as not given.

        Raises:
            UsageError: There is no such stage.
        """
        stage, identifier, action = (query.get(name, "").strip() for name in ("stage", "id", "action"))
        if stage and stage not in STAGES:
            raise UsageError(f"stage: one of {', '.join(STAGES)}")
        return cls(stage, identifier, action)

    def matches(self, tracked: Tracked) -> bool:
        """Return True if an event is among those chosen."""
        action = "" if tracked.event is None else tracked.event.action or ""
        return (
            self._matches_stage(tracked)
            and self.id.casefold() in tracked.id.casefold()
            and self.action.casefold() in action.casefold()
        )

    def _matches_stage(self, tracked: Tracked) -> bool:
        if self.stage == Outcome.RELEASED:
            return tracked.removed is not None and tracked.removed.outcome is Outcome.RELEASED
        return self.stage in ("", tracked.state)

    def chosen(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot whose recent events are the latest of those chosen, among all that it has."""
        if not self:
            return snapshot
        found = [each for each in (*snapshot.recent, *snapshot.earlier) if self.matches(each)]
        return replace(snapshot, recent=tuple(found[:MOST]))


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The parts of a page's address that choose what it shows, besides the partition key.

    Attributes:
        events: The choice among the latest events.
        records: Ids of the records in quarantine that are selected, each once.
    """

    events: EventFilter = field(default_factory=EventFilter)
    records: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.events or self.records)

    @classmethod
    def of(cls, query: Mapping[str, str], records: Iterable[str] = ()) -> PageQuery:
        """Read the query of an address, with each value of its `record`. Raises UsageError."""
        records = tuple(dict.fromkeys(filter(None, records)))
        if len(records) > MOST_RECORDS:
            raise UsageError(f"record: at most {MOST_RECORDS}")
        return cls(EventFilter.of(query), records)

    def encoded(self, partition_key: str = "") -> str:
        """Return the query with which the same is shown, with a question mark; empty if it chooses nothing."""
        given = [(name, value) for name, value in self._members(partition_key) if value]
        return f"?{urlencode(given, errors='replace')}" if given else ""

    def _members(self, partition_key: str) -> Iterator[tuple[str, str]]:
        yield "key", partition_key
        yield "stage", self.events.stage
        yield "id", self.events.id
        yield "action", self.events.action
        for each in self.records:
            yield "record", each


EVERYTHING = PageQuery()
"""The query of an address without one."""
