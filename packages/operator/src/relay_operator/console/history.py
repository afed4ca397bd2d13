"""The last hour of a relay in slots of ten seconds: what was observed of each, and None of all others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SLOT_S = 10
"""Length of a slot, in seconds: as long as the time that a rate covers."""

SLOTS = 360
"""Number of slots that are kept: an hour."""


@dataclass(frozen=True, slots=True)
class History:
    """The finished slots of the last hour, from the first one of which anything is known; None is unknown.

    Attributes:
        since: When the first slot begins, in seconds since 1970; None without a slot.
        slot_s: Length of a slot, in seconds.
        published_s: The last rate that was read in each slot. It covers ten seconds, so the first slot after one
            that was not observed has none.
        lag_s, quarantined, dead_lettered: The largest figure that was read in each slot.
    """

    since: float | None = None
    slot_s: int = SLOT_S
    published_s: Sequence[float | None] = ()
    lag_s: Sequence[float | None] = ()
    quarantined: Sequence[float | None] = ()
    dead_lettered: Sequence[float | None] = ()


class Ring:
    """The figures that were read in the last hour, at most one for each measure and slot."""

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}
        self._largest: Mapping[str, dict[int, float]] = {
            name: {} for name in ("lag_s", "quarantined", "dead_lettered")
        }

    def note_rate(self, at: float | None, rate: float | None) -> None:
        """Note a rate with the time at which its reading began; nothing if either is unknown."""
        if at is not None and rate is not None:
            self._rates[_slot(at)] = rate

    def note(self, measure: str, at: float | None, figure: float | None) -> None:
        """Note another figure with the time at which its reading began; nothing if either is unknown."""
        if at is not None and figure is not None:
            known, slot = self._largest[measure], _slot(at)
            known[slot] = max(figure, known.get(slot, figure))

    def history(self, now: float) -> History:
        """Return the slots that have ended, and forget those of more than an hour ago."""
        end = _slot(now)
        series = [self._rates, *self._largest.values()]
        for known in series:
            # One more than is shown, for the rate of the first.
            for slot in [each for each in known if not end - SLOTS - 1 <= each <= end]:
                del known[slot]
        first = min((slot for known in series for slot in known), default=end)
        slots = range(max(first, end - SLOTS), end)
        if not slots:
            return History()
        lag_s, quarantined, dead_lettered = (tuple(map(known.get, slots)) for known in self._largest.values())
        rates = tuple(self._rates.get(each) if each - 1 in self._rates else None for each in slots)
        return History(float(slots.start * SLOT_S), SLOT_S, rates, lag_s, quarantined, dead_lettered)


def _slot(at: float) -> int:
    return math.floor(at / SLOT_S)
