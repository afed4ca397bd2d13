"""The last hour in slots of ten seconds, rates and latencies, and the time from a commit to its message.

Cosmos DB stores the second of a commit, `_ts`, without its fraction. A latency that counts from there is up to a
second too long, so it counts from the writer's own `createdAt` if that agrees with the second; otherwise there is
no figure.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

_RATE_S = 10
LATENCY_S = 60.0
"""Seconds of which there are latencies."""

# Maximum number of latencies kept; beyond it, the oldest of the minute are dropped.
_LATENCIES = 2000


class Rate:
    """Number of events a second over the last ten seconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, at: float) -> None:
        self._counts[math.floor(at)] += 1

    def per_second(self, now: float) -> float:
        for second in [each for each in self._counts if each <= now - _RATE_S]:
            del self._counts[second]
        return round(self._counts.total() / _RATE_S, 1)


class Latencies:
    """Percentiles of the latencies of the last minute, in milliseconds."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=_LATENCIES)

    def add(self, latency_s: float, now: float) -> None:
        self._kept.append((now, latency_s))

    def percentiles(self, now: float) -> tuple[float | None, float | None]:
        """p50 and p99; None if there is none."""
        while self._kept and self._kept[0][0] < now - LATENCY_S:
            self._kept.popleft()
        ordered = sorted(latency for _, latency in self._kept)
        if not ordered:
            return None, None
        return _nearest(ordered, 0.50), _nearest(ordered, 0.99)


def _nearest(ordered: list[float], share: float) -> float:
    return round(1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)], 1)


# A writer makes an event shortly before its commit, which may be in the next second.
_BEFORE_COMMIT_S = 1.0

NO_START = "data.createdAt is missing, or not in the second of the commit"
"""Why `started_at` is None of an event that was committed."""


def started_at(committed_at: float | None, created_at: str | None) -> float | None:
    """Return the start of an event's latency in seconds since 1970, or None if it is not known well enough.

    Args:
        committed_at: When the database stored it; without a fraction, only the second is known.
        created_at: When its writer made it, as written.
    """
    if committed_at is None or not float(committed_at).is_integer():
        return committed_at
    made = written_moment(created_at)
    if made is None or not committed_at - _BEFORE_COMMIT_S <= made < committed_at + 1:
        return None
    return made


def took_s(committed_at: float | None, created_at: str | None, until: float | None) -> float | None:
    """Return the seconds from the commit of an event to a later moment, or None if either is not known."""
    start = started_at(committed_at, created_at)
    return None if start is None or until is None else max(0.0, until - start)


def estimated_at(committed_at: float, created_at: str | None, read_up_to: float | None, now: float) -> float:
    """Estimate when an event was committed, for the age of what waits.

    What was not there when all had been read (`read_up_to`, None if that is long ago) was committed later; within
    what is left of the second, the writer's own clock is believed.
    """
    if not float(committed_at).is_integer():
        return min(committed_at, now)
    latest = min(committed_at + 1, now)
    earliest = min(max(committed_at, read_up_to or committed_at), latest)
    made = written_moment(created_at)
    if made is not None and earliest <= made <= latest:
        return made
    return earliest if read_up_to is None else (earliest + latest) / 2


def written_moment(text: str | None) -> float | None:
    """Return the seconds since 1970 of a time in ISO 8601 with a zone, or None for anything else."""
    try:
        moment = datetime.fromisoformat(text or "")
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


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
