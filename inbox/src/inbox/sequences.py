"""Which events of an entity were handled, by their numbers: what is missing, and what came late. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

_NOTHING = range(0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a store says about a message.

    Attributes:
        first: False if a message with this id was handled before: skip its effect.
        missing: The numbers of events that should have come before this one and did not. They are in quarantine,
            dead-lettered, or expired. Each is reported once, by the first event after it.
        late: Whether later events of the entity were handled before this one.
    """

    first: bool
    missing: range = _NOTHING
    late: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What was handled of one entity.

    Attributes:
        last: The highest number.
        gaps: The numbers below it that are missing, as ranges in ascending order.
    """

    last: int
    gaps: tuple[range, ...] = ()


def advance(progress: Progress | None, sequence: int) -> tuple[Progress, Arrival]:
    """Handle the event with a number; `progress` is None for an entity of which none was handled.

    Events before the first one do not count as missing: a subscription starts when it is created.
    """
    if progress is None:
        return Progress(sequence), Arrival(first=True)
    if sequence <= progress.last:
        gaps = tuple(part for gap in progress.gaps for part in _without(gap, sequence))
        return Progress(progress.last, gaps), Arrival(first=True, late=True)
    missing = range(progress.last + 1, sequence)
    gaps = (*progress.gaps, missing) if missing else progress.gaps
    return Progress(sequence, gaps), Arrival(first=True, missing=missing)


def _without(gap: range, number: int) -> tuple[range, ...]:
    if number not in gap:
        return (gap,)
    return tuple(part for part in (range(gap.start, number), range(number + 1, gap.stop)) if part)
