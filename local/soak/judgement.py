"""The judgement on a process: its memory has to stay flat, and all that it relayed has to arrive once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# By the second sample every bounded buffer is full, so nothing may grow after it.
_REFERENCE = 1
_TOLERANCE = 1.05

SAMPLES_NEEDED = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a soak.

    Attributes:
        events: Domain events relayed.
        missing: Domain events that the topic does not hold; negative if it holds some twice.
        seconds: Duration.
        rss_mib: The resident size of the relay's process in MiB, sample by sample.
        growth: The last sample divided by the second; None for fewer than three samples.
        flat: Whether the last sample is at most 5 % above the second.
    """

    events: int
    missing: int
    seconds: float
    rss_mib: Sequence[float]
    growth: float | None
    flat: bool

    @classmethod
    def of(cls, events: int, missing: int, seconds: float, rss_bytes: Sequence[int]) -> Judgement:
        """Judge samples of the resident size, in bytes."""
        growth = rss_bytes[-1] / rss_bytes[_REFERENCE] if len(rss_bytes) >= SAMPLES_NEEDED else None
        return cls(
            events=events,
            missing=missing,
            seconds=round(seconds, 1),
            rss_mib=[round(size / 2**20, 1) for size in rss_bytes],
            growth=None if growth is None else round(growth, 4),
            flat=growth is not None and growth <= _TOLERANCE,
        )

    @property
    def passed(self) -> bool:
        """True if the memory stayed flat, and nothing is missing or there twice."""
        return self.flat and not self.missing

    def summary(self) -> dict[str, Any]:
        """Return the JSON that the command prints."""
        return asdict(self)
