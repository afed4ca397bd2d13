"""Rates and latencies, over the last seconds or the last minute."""

from __future__ import annotations

import math
from collections import Counter, deque

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
