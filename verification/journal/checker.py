"""Judges a journal, in the style of Jepsen's checkers: what was promised of each event, and what became of it.

It shares no code with what it judges, and knows nothing of how it works: see `specification` for that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from verification.journal import entries
from verification.journal.entries import Entry

_SHOWN = 10


class Policy(StrEnum):
    """The fate of later events of a key when one can never be published: RELAY_ON_POISON."""

    SKIP = "skip"
    """They are published."""
    PARK = "park"
    """They are held back until an operator has removed the record of that one, and then released in order."""
    BLOCK = "block"
    """They wait until an operator has ordered that one to be set aside."""


class Wrong(StrEnum):
    """A kind of violation."""

    MISSING = "missing"
    """A committed event that was neither accepted nor set aside, or was accepted and had no effect."""
    DUPLICATED = "duplicated"
    """An event that the topic accepted again, or that had its effect again."""
    OUT_OF_ORDER = "out_of_order"
    """An event that was first accepted, or had its effect, after a later one of its key."""
    ALTERED = "altered"
    """A message that differs from what was committed, or of which nothing sound was committed."""
    QUARANTINED_AND_DELIVERED = "quarantined_and_delivered"
    """An event that was set aside and accepted, though it was neither ordered nor released."""
    SET_ASIDE_THOUGH_SOUND = "set_aside_though_sound"
    """A sound event that was set aside without an order, or parked where nothing is parked."""
    SET_ASIDE_AGAIN = "set_aside_again"
    """An event that was set aside again after its record had been released or discarded."""
    AHEAD_OF_POISON = "ahead_of_poison"
    """With `park` and `block`: an event that was accepted before poison of its key was settled."""
    WITHOUT_ORDER = "without_order"
    """With `block`: an event that was set aside without an order."""
    UNCAUSED = "uncaused"
    """An entry ahead of its cause: accepted before committed, dropped or handled before accepted."""


@dataclass(slots=True)
class Violations:
    """The violations that a journal shows.

    Attributes:
        counts: The number of violations of each kind.
        findings: The first of them, each with the lines of the journal that show it.
    """

    counts: Counter[StrEnum] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, kind: StrEnum, text: str) -> None:
        """Count a violation; the first ones are described."""
        self.counts[kind] += 1
        if len(self.findings) < _SHOWN:
            self.findings.append(f"{kind}: {text}")


@dataclass(slots=True)
class Report(Violations):
    """The faults of a journal, by the kinds of `Wrong`.

    Attributes:
        quarantined: Number of events that were set aside, or parked, and not released.
        expected_quarantined: Number of those that had to be: poison, and what was set aside by an order.
    """

    quarantined: int = 0
    expected_quarantined: int = 0

    @property
    def is_right(self) -> bool:
        """True if nothing is wrong."""
        return not self.counts.total() and self.quarantined == self.expected_quarantined


@dataclass(slots=True)
class _Event:
    """The entries of a journal about one event. Numbers are lines of the journal; 0 means that there is none."""

    key: str
    id: str
    committed: int = 0
    place: int = 0
    digest: str = ""
    sound: bool = True
    accepted: list[int] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    set_aside: int = 0
    parked: int = 0
    ordered: int = 0
    released: int = 0
    discarded: int = 0
    handled: dict[str, list[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"event {self.id!r} of key {self.key!r} (committed in line {self.committed})"

    @property
    def is_aside(self) -> bool:
        """True if the event is in quarantine at the end, or was removed from it for good."""
        return bool(self.set_aside or self.parked) and not self.released

    @property
    def settled(self) -> int:
        """The line from which on the events behind it may be published under `park`."""
        return min((line for line in (self.discarded, self.released) if line), default=0)


def check(journal: Iterable[Entry], policy: Policy = Policy.SKIP, *, is_complete: bool = True) -> Report:
    """Judge a journal.

    Args:
        journal: Its entries, in order.
        policy: What the relay was to do with the events behind poison.
        is_complete: Whether everything that was committed had the time to arrive.
    """
    return _Checker(policy).check(journal, is_complete=is_complete)


class _Checker:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._report = Report()
        self._events: dict[tuple[str, str], _Event] = {}
        self._keys: defaultdict[str, list[_Event]] = defaultdict(list)
        self._consumers: set[str] = set()
        self._frozen: set[str] = set()

    def check(self, journal: Iterable[Entry], *, is_complete: bool) -> Report:
        for line, entry in enumerate(journal, 1):
            self._take(line, entry)
        for events in self._keys.values():
            self._judge_key(events, is_complete=is_complete)
        everything = [event for events in self._keys.values() for event in events]
        self._report.quarantined = sum(event.is_aside for event in everything)
        self._report.expected_quarantined = sum(
            (not event.sound and is_complete) or (event.is_aside and (not event.sound or event.ordered > 0))
            for event in everything
        )
        return self._report

    def _take(self, line: int, entry: Entry) -> None:
        match entry:
            case entries.Committed():
                self._commit(line, entry)
            case entries.OfEvent():
                event = self._events.get((entry.key, entry.id))
                if event is None:
                    self._report.add(
                        Wrong.ALTERED if isinstance(entry, entries.Accepted) else Wrong.UNCAUSED,
                        f"line {line}: {entry.kind} of {entry.id!r} of key {entry.key!r}, which was not committed",
                    )
                else:
                    self._note(line, entry, event)
            case entries.Frozen():
                self._frozen.add(entry.by)
            case entries.Resumed():
                self._require(line, entry, cause=entry.by in self._frozen, what="was not frozen")
                self._frozen.discard(entry.by)

    def _commit(self, line: int, entry: entries.Committed) -> None:
        if (entry.key, entry.id) in self._events:
            before = self._events[entry.key, entry.id]
            self._report.add(Wrong.UNCAUSED, f"line {line}: {before} was committed again")
            return
        event = _Event(entry.key, entry.id, line, len(self._keys[entry.key]), entry.digest, entry.sound)
        self._events[entry.key, entry.id] = event
        self._keys[entry.key].append(event)

    def _note(self, line: int, entry: entries.OfEvent, event: _Event) -> None:
        match entry:
            case entries.Accepted():
                self._compare(line, event, entry.digest)
                event.accepted.append(line)
                event.numbers.add(entry.number)
            case entries.Duplicate():
                self._require(line, entry, cause=bool(event.accepted), what=f"the topic has not accepted {event}")
                self._compare(line, event, entry.digest)
            case entries.Handled():
                self._require(line, entry, cause=bool(event.accepted), what=f"the topic has not accepted {event}")
                self._compare(line, event, entry.digest)
                if entry.number is not None and entry.number not in event.numbers:
                    what = f"came with the number {entry.number}, which the topic did not give it"
                    self._report.add(Wrong.ALTERED, f"line {line}: {event} {what}")
                self._consumers.add(entry.consumer)
                event.handled.setdefault(entry.consumer, []).append(line)
            case entries.SetAside():
                self._keep(line, event)
                event.set_aside = event.set_aside or line
            case entries.Parked():
                self._keep(line, event)
                event.parked = event.parked or line
            case entries.Ordered():
                event.ordered = event.ordered or line
            case entries.Released() | entries.Discarded():
                self._remove(line, entry, event)

    def _keep(self, line: int, event: _Event) -> None:
        if removed := event.released or event.discarded:
            self._report.add(
                Wrong.SET_ASIDE_AGAIN, f"line {line}: {event} was set aside after line {removed} had removed it"
            )

    def _remove(self, line: int, entry: entries.Released | entries.Discarded, event: _Event) -> None:
        is_there = bool(event.set_aside or event.parked)
        self._require(line, entry, cause=is_there, what=f"there is no record of {event}")
        if isinstance(entry, entries.Discarded):
            event.discarded = event.discarded or line
        else:
            self._require(line, entry, cause=bool(event.accepted), what=f"the topic has not accepted {event}")
            event.released = event.released or line

    def _require(self, line: int, entry: Entry, *, cause: bool, what: str) -> None:
        if not cause:
            self._report.add(Wrong.UNCAUSED, f"line {line}: {entry.kind} by {entry.by!r}, and {what}")

    def _compare(self, line: int, event: _Event, digest: str | None) -> None:
        if not event.sound:
            self._report.add(Wrong.ALTERED, f"line {line}: {event} cannot be published, and was")
        elif digest is not None and digest != event.digest:
            self._report.add(
                Wrong.ALTERED, f"line {line}: {event} has the digest {digest} instead of {event.digest}"
            )

    def _judge_key(self, events: list[_Event], *, is_complete: bool) -> None:
        for event in events:
            self._judge_copies(event)
            self._judge_aside(event)
            if is_complete:
                self._judge_presence(event)
        self._judge_order([(event, event.accepted) for event in events], "was accepted")
        for consumer in sorted(self._consumers):
            handled = [(event, event.handled.get(consumer, [])) for event in events]
            self._judge_order(handled, f"had its effect at {consumer}")
        if self._policy is not Policy.SKIP:
            self._judge_held_back(events)

    def _judge_copies(self, event: _Event) -> None:
        for line in event.accepted[1:]:
            self._report.add(
                Wrong.DUPLICATED, f"line {line}: {event} was accepted again, first in line {event.accepted[0]}"
            )
        for consumer, lines in event.handled.items():
            for line in lines[1:]:
                self._report.add(
                    Wrong.DUPLICATED,
                    f"line {line}: {event} had its effect at {consumer} again, first in line {lines[0]}",
                )

    def _judge_aside(self, event: _Event) -> None:
        line = event.set_aside or event.parked
        if not line:
            return
        may_be_parked = event.parked and self._policy is Policy.PARK
        if event.sound and not event.ordered and (event.set_aside or not may_be_parked):
            self._report.add(Wrong.SET_ASIDE_THOUGH_SOUND, f"line {line}: {event} is sound, and was set aside")
        if event.accepted and not event.ordered and not event.released:
            self._report.add(
                Wrong.QUARANTINED_AND_DELIVERED,
                f"line {line}: {event} was set aside, and accepted in line {event.accepted[0]}",
            )
        if self._policy is Policy.BLOCK and not event.ordered:
            self._report.add(Wrong.WITHOUT_ORDER, f"line {line}: {event} was set aside without an order")

    def _judge_presence(self, event: _Event) -> None:
        if not event.accepted and not event.is_aside:
            self._report.add(Wrong.MISSING, f"{event} was neither accepted nor set aside")
        for consumer in sorted(self._consumers):
            if event.accepted and consumer not in event.handled:
                self._report.add(
                    Wrong.MISSING,
                    f"{event} was accepted in line {event.accepted[0]}, and had no effect at {consumer}",
                )

    def _judge_order(self, events: list[tuple[_Event, list[int]]], what: str) -> None:
        """Judge the order of first copies.

        Each has to come behind those of all earlier events of its key that came.
        """
        furthest: _Event | None = None
        for event, line in sorted(
            ((event, lines[0]) for event, lines in events if lines), key=lambda each: each[1]
        ):
            if furthest is not None and event.place < furthest.place and not self._may_be_late(event, line):
                self._report.add(Wrong.OUT_OF_ORDER, f"line {line}: {event} {what} after {furthest}")
            if furthest is None or event.place > furthest.place:
                furthest = event

    def _may_be_late(self, event: _Event, line: int) -> bool:
        """Return True if the event was released, where releasing does not keep order."""
        return self._policy is not Policy.PARK and bool(event.released) and 0 < event.set_aside < line

    def _judge_held_back(self, events: list[_Event]) -> None:
        for poison in (event for event in events if not event.sound):
            settled = poison.ordered if self._policy is Policy.BLOCK else poison.settled
            for event in events[poison.place + 1 :]:
                if event.accepted and not 0 < settled < event.accepted[0]:
                    self._report.add(
                        Wrong.AHEAD_OF_POISON,
                        f"line {event.accepted[0]}: {event} was accepted ahead of {poison}, which holds it back",
                    )
