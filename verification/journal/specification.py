"""Holds a journal against the specifications: is it a behaviour that Relay.tla, Feed.tla and Claims.tla allow?

A journal does not have every variable of theirs: it leaves out what a process knows, and what is on its way. So
these are the conditions and the guarantees of their steps as far as a journal shows them. Each kind says which.
These specifications leave setting aside out; here an event in quarantine may be passed, as in docs/guarantees.md.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from verification.journal import entries
from verification.journal.checker import Policy, Violations
from verification.journal.entries import Entry, Position

TOPICS_CLOCK_S = 1.0
"""Seconds by which the time of an entry may differ from that by which the topic decided."""


class Step(StrEnum):
    """A kind of step that no specification allows."""

    PASSED = "passed"
    """G1 (Relay.Checkpoint, Claims.Store, Feed.Read): a position was stored that passes an event which was neither
    accepted nor set aside."""
    AHEAD = "ahead"
    """G2 (Relay.Send, Claims.Send): an event was accepted first while an earlier one of its key was not."""
    AGAIN = "again"
    """G3 (Relay.Arrive, Claims.Arrive): an event was accepted again."""
    WINDOW = "window"
    """TopicDetectsDuplicates (Relay.Arrive): a message was accepted though its id came within the window, or was
    dropped though it did not."""
    OWNER = "owner"
    """OwnersCheckpoint, StoresUnderItsEpoch (Relay.Checkpoint, Claims.Store): a position was stored by a process
    that was not the owner, or under another epoch."""
    CLAIM = "claim"
    """Relay.Acquire, TakingRaisesEpoch (Claims.Take): a lease was taken that had an owner, or under an epoch that
    did not rise; or it was lost by a process that did not have it."""
    BACK = "back"
    """Relay.Checkpoint, Claims.Store: a position went back, or was stored again."""
    PLACE = "place"
    """Feed.Place: the positions of a key are not in the order of its commits, or a position was given twice."""
    PAGE = "page"
    """Relay.Read, PagesEndWithCommits: a page began elsewhere than at its lease's position, was not delivered to
    its owner, or ended within a commit."""
    TIME = "time"
    """Tick: time went back."""


@dataclass(slots=True)
class _Event:
    entry: entries.Committed
    line: int
    place: int
    accepted: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    is_aside: bool = False
    is_ordered: bool = False

    def __str__(self) -> str:
        return f"event {self.entry.id!r} of key {self.entry.key!r} (committed in line {self.line})"

    @property
    def is_settled(self) -> bool:
        """True if a lease may pass the event."""
        return bool(self.accepted) or self.is_aside

    @property
    def position(self) -> Position:
        return self.entry.position or ()


@dataclass(slots=True)
class _Lease:
    """A lease; `covered` are its events in the order of their positions, and it has passed the first `passed`."""

    covered: Sequence[_Event]
    passed: int = 0
    owner: str | None = None
    epoch: int | None = None
    position: Position | None = None


def validate(
    journal: Sequence[Entry], policy: Policy = Policy.SKIP, *, window_s: float | None = None, slack_s: float = 0.0
) -> Violations:
    """Judge a journal.

    Args:
        journal: Its entries, in order.
        policy: What the relay was to do with the events behind poison.
        window_s: The topic's duplicate detection window, if drops are to be compared with it.
        slack_s: How far the times of the topic's entries may be from those by which it decided.
    """
    return _Validator(journal, policy, window_s, slack_s).validate()


class _Validator:
    def __init__(self, journal: Sequence[Entry], policy: Policy, window_s: float | None, slack_s: float) -> None:
        self._journal = journal
        self._policy = policy
        self._window_s = window_s
        self._slack_s = slack_s
        self._found = Violations()
        self._events: dict[tuple[str, str], _Event] = {}
        self._keys: defaultdict[str, list[_Event]] = defaultdict(list)
        self._first_open: defaultdict[str, int] = defaultdict(int)
        self._leases: dict[str, _Lease] = {}

    def validate(self) -> Violations:
        self._gather()
        now = float("-inf")
        for line, entry in enumerate(self._journal, 1):
            if entry.at < now:
                self._found.add(Step.TIME, f"line {line}: {entry.at} is before {now}")
            now = entry.at
            self._step(line, entry)
        return self._found

    def _gather(self) -> None:
        """Take all events first: a position may pass one that is committed only later."""
        given: dict[tuple[str, Position], _Event] = {}
        for line, entry in enumerate(self._journal, 1):
            if not isinstance(entry, entries.Committed) or (entry.key, entry.id) in self._events:
                continue
            event = _Event(entry, line, len(self._keys[entry.key]))
            self._events[entry.key, entry.id] = event
            self._keys[entry.key].append(event)
            if event.position:
                other = given.setdefault((entry.place, event.position), event)
                if other is not event:
                    self._found.add(Step.PLACE, f"line {line}: {event} has the position of {other}")
        for events in self._keys.values():
            self._judge_places([event for event in events if event.position])

    def _judge_places(self, events: Sequence[_Event]) -> None:
        for before, event in pairwise(events):
            if event.position[0] < before.position[0]:
                self._found.add(Step.PLACE, f"line {event.line}: {event} has a position ahead of {before}")

    def _step(self, line: int, entry: Entry) -> None:
        match entry:
            case entries.OfLease():
                self._of_lease(line, entry)
            case entries.OfEvent():
                event = self._events.get((entry.key, entry.id))
                if event is not None:
                    self._of_event(line, entry, event)

    def _of_event(self, line: int, entry: entries.OfEvent, event: _Event) -> None:
        match entry:
            case entries.Accepted():
                self._accept(line, entry, event)
            case entries.Duplicate():
                if not self._came_within(entry.at, event, self._slack_s):
                    self._found.add(Step.WINDOW, f"line {line}: {event} was dropped outside the window")
            case entries.SetAside() | entries.Parked():
                event.is_aside = True
            case entries.Ordered():
                event.is_ordered = True

    def _accept(self, line: int, entry: entries.Accepted, event: _Event) -> None:
        if event.accepted:
            self._found.add(
                Step.AGAIN, f"line {line}: {event} was accepted again, before in line {event.lines[-1]}"
            )
            if self._window_s is not None and self._came_within(entry.at, event, -self._slack_s):
                self._found.add(Step.WINDOW, f"line {line}: {event} was accepted again within the window")
        elif (before := self._open_before(event)) and not self._may_be_late(event):
            self._found.add(Step.AHEAD, f"line {line}: {event} was accepted ahead of {before}")
        event.accepted.append(entry.at)
        event.lines.append(line)

    def _came_within(self, at: float, event: _Event, slack_s: float) -> bool:
        if not event.accepted:
            return False
        return self._window_s is None or at - event.accepted[-1] < self._window_s + slack_s

    def _open_before(self, event: _Event) -> _Event | None:
        """Return the first event of its key that has to come before it, and did not."""
        events, key = self._keys[event.entry.key], event.entry.key
        while self._first_open[key] < len(events) and self._is_out_of_the_way(events[self._first_open[key]]):
            self._first_open[key] += 1
        first = self._first_open[key]
        return events[first] if first < event.place else None

    @staticmethod
    def _is_out_of_the_way(event: _Event) -> bool:
        return event.is_settled or event.is_ordered or not event.entry.sound

    def _may_be_late(self, event: _Event) -> bool:
        """Return True if the event is being released, where that does not keep order."""
        return event.is_aside and self._policy is not Policy.PARK

    def _of_lease(self, line: int, entry: entries.OfLease) -> None:
        lease = self._leases.get(entry.lease)
        if lease is None:
            lease = self._leases[entry.lease] = _Lease(self._covered(entry))
        match entry:
            case entries.Claimed():
                self._claim(line, entry, lease)
            case entries.Lost():
                self._require_owner(line, Step.CLAIM, entry, lease, "lost")
                lease.owner = None
            case entries.Read():
                self._read(line, entry, lease)
            case entries.Checkpointed():
                self._checkpoint(line, entry, lease)

    def _covered(self, lease: entries.OfLease) -> list[_Event]:
        found = [event for event in self._events.values() if event.position and lease.has(event.entry.place)]
        return sorted(found, key=lambda event: event.position)

    def _claim(self, line: int, entry: entries.Claimed, lease: _Lease) -> None:
        if lease.owner is not None:
            self._found.add(
                Step.CLAIM, f"line {line}: {entry.owner!r} took lease {entry.lease}, which {lease.owner!r} has"
            )
        if entry.epoch is not None and lease.epoch is not None and entry.epoch <= lease.epoch:
            self._found.add(
                Step.CLAIM,
                f"line {line}: {entry.owner!r} took lease {entry.lease} under the epoch {entry.epoch}, not above "
                f"{lease.epoch}",
            )
        lease.owner, lease.epoch = entry.owner, entry.epoch

    def _require_owner(self, line: int, step: Step, entry: entries.OfLease, lease: _Lease, what: str) -> None:
        if (entry.owner, entry.epoch) != (lease.owner, lease.epoch):
            self._found.add(
                step,
                f"line {line}: lease {entry.lease} was {what} by {entry.owner!r} under the epoch {entry.epoch}; "
                f"{lease.owner!r} has it, under {lease.epoch}",
            )

    def _read(self, line: int, entry: entries.Read, lease: _Lease) -> None:
        self._require_owner(line, Step.PAGE, entry, lease, "read")
        if lease.position is not None and entry.after != lease.position:
            self._found.add(
                Step.PAGE, f"line {line}: a page begins behind {entry.after}, its lease is at {lease.position}"
            )
        end = self._passed_at(lease, entry.upto)
        around = lease.covered[max(end - 1, 0) : end + 1]
        if 0 < end < len(lease.covered) and len({event.position[0] for event in around}) == 1:
            self._found.add(Step.PAGE, f"line {line}: a page ends within a commit, before {around[-1]}")

    def _checkpoint(self, line: int, entry: entries.Checkpointed, lease: _Lease) -> None:
        # A lease that a split made has a position before it has an owner.
        if entry.owner or (lease.owner, lease.position) != (None, None):
            self._require_owner(line, Step.OWNER, entry, lease, "moved")
        if lease.position is not None and _reach(entry.position) <= _reach(lease.position):
            self._found.add(
                Step.BACK, f"line {line}: lease {entry.lease} went from {lease.position} to {entry.position}"
            )
        end = self._passed_at(lease, entry.position)
        for event in lease.covered[lease.passed : end]:
            if not event.is_settled:
                self._found.add(Step.PASSED, f"line {line}: lease {entry.lease} passed {event}")
        lease.position, lease.passed = entry.position, max(lease.passed, end)

    @staticmethod
    def _passed_at(lease: _Lease, position: Position) -> int:
        """Return the number of its events that a lease at this position has passed."""
        return bisect_right(lease.covered, position, key=lambda event: event.position[: len(position)])


def _reach(position: Position) -> tuple[float, ...]:
    """Return a value that compares positions: a shorter one lies behind those that begin with it."""
    return (*position, math.inf)
