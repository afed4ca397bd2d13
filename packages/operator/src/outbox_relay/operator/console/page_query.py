"""The query of a page's address: the choice of events, and the selected records with their commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from outbox_relay.operator.console.backlog import MOST
from outbox_relay.operator.console.formatting import Commands, plural
from outbox_relay.operator.console.model import EventState, QuarantineRecord, Snapshot, Tracked
from outbox_relay.operator.outcomes import Outcome
from outbox_relay.operator.reasons import may_be_released
from relay.core.errors import UsageError
from relay.core.remedy import Remedy

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


AT_ONCE = 50
"""Maximum number of records of one command: cmd.exe takes 8 191 characters, and an id has 40."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected records among those that the page shows.

    Attributes:
        records: Those that the page shows, in its order.
        others: Number of those that it does not show: they are settled by now, or never were in quarantine. No
            command names them, as anyone can write them into an address.
        commands: What each does in words, and the command.
    """

    records: Sequence[QuarantineRecord]
    others: int
    commands: Sequence[tuple[str, Remedy]]


def selection(snapshot: Snapshot, ids: Sequence[str], commands: Commands) -> Selection:
    """Return the records with these ids, and the commands that release or discard them."""
    shown = {record.id: record for group in snapshot.quarantine for record in group.examples}
    found = [record for record in shown.values() if record.id in ids]
    return Selection(found, len(set(ids)) - len(found), list(_commands(found, commands)))


def _commands(records: Sequence[QuarantineRecord], commands: Commands) -> Iterator[tuple[str, Remedy]]:
    released = [each.id for each in records if may_be_released(each.reason)]
    discarded = [each.id for each in records]
    for what, command, ids in (
        ("release", commands.release_records, released),
        ("discard", commands.discard_records, discarded),
    ):
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            yield f"{what} {plural(len(some), 'record', 'records')}", command(some)
