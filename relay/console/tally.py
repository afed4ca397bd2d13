"""Rates and latencies of the last moments, in bounded memory."""

from __future__ import annotations

import math
from collections import deque

RATE_S = 10
LATENCY_S = 60.0

# Maximum number of latencies kept; beyond it, the oldest of the minute are dropped.
_LATENCIES = 2000


class Rate:
    """How many events a second there were over the last ten seconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, at: float, now: float) -> None:
        """Count one event at a time; one that is too old does not count."""
        second = math.floor(min(at, now))
        if second > now - RATE_S:
            self._counts[second] = self._counts.get(second, 0) + 1

    def at(self, now: float) -> float:
        """Events a second."""
        for second in [each for each in self._counts if each <= now - RATE_S]:
            del self._counts[second]
        return round(sum(self._counts.values()) / RATE_S, 1)


class Latencies:
    """Percentiles of the latencies of the last minute, in milliseconds."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=_LATENCIES)

    def add(self, latency_s: float, now: float) -> None:
        """Keep one."""
        self._kept.append((now, max(0.0, latency_s)))

    def percentiles(self, now: float) -> tuple[float | None, float | None]:
        """p50 and p99; None where there is none."""
        while self._kept and self._kept[0][0] < now - LATENCY_S:
            self._kept.popleft()
        ordered = sorted(latency for _, latency in self._kept)
        if not ordered:
            return None, None
        return _nearest(ordered, 0.50), _nearest(ordered, 0.99)


def _nearest(ordered: list[float], share: float) -> float:
    return round(1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)], 1)
