"""Tracks the numbers of an entity's handled events, to find missing and late ones. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_relay.inbox.handling import note_closed
from outbox_relay.inbox.telemetry import note_missing

_NOTHING = range(0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A store's answer about a message.

    Attributes:
        first: False if this message was handled before: skip its effect.
        missing: The numbers of events that should have come before this one and did not. They are in quarantine,
            dead-lettered, or expired. Each is reported once, by the first event after it.
        late: Whether later events of the entity were handled before this one.
        was_missing: Whether this one was reported as missing before: it closes a gap, or makes it smaller.
    """

    first: bool
    missing: range = _NOTHING
    late: bool = False
    was_missing: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """How an event changes the progress of its entity. A store writes only this, however many gaps there are.

    Attributes:
        arrival: The value for the handler.
        last: The highest handled number.
        closed: The gap that contained the number and no longer exists.
        opened: New gaps.
    """

    arrival: Arrival
    last: int
    closed: range | None = None
    opened: tuple[range, ...] = ()


def advance(last: int | None, gap: range | None, sequence: int) -> Step:
    """Handle the event with a number.

    Events before the first one do not count as missing: a subscription starts when it is created.

    Args:
        last: The highest handled number of the entity; None if no event was handled.
        gap: The missing numbers around `sequence`; None if it is not missing.
        sequence: The event's number.
    """
    if last is None:
        return Step(Arrival(first=True), sequence)
    if sequence <= last:
        if gap is None:
            return Step(Arrival(first=True, late=True), last)
        note_closed(sequence)
        late = Arrival(first=True, late=True, was_missing=True)
        parts = (range(gap.start, sequence), range(sequence + 1, gap.stop))
        return Step(late, last, gap, tuple(part for part in parts if part))
    missing = range(last + 1, sequence)
    note_missing(missing)
    return Step(Arrival(first=True, missing=missing), sequence, opened=(missing,) if missing else ())
