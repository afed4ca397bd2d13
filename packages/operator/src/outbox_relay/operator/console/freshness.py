"""When each figure of a snapshot was known, and when it is too old to be shown as current."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from outbox_relay.operator.console.model import Known


class Part(StrEnum):
    """A part of the figures that is read in one go.

    `RELAY` is the outbox to its end, then the positions, then the new records; `RECENT` the same, and then what
    the topic knows of the latest events.
    """

    OUTBOX = "outbox"
    RELAY = "relay"
    RECENT = "recent"
    QUARANTINE = "quarantine"
    REASONS = "reasons"
    SUBSCRIPTIONS = "subscriptions"
    DEAD_LETTERS = "dead letters"
    HOSTS = "hosts"
    OBSTACLES = "obstacles"
    REMOVALS = "removals"


STALE_AFTER_S: Mapping[Part, float] = {
    # Records and messages are read when their number changes, and every thirty seconds; obstacles every ten.
    **dict.fromkeys(Part, 10.0),
    Part.REASONS: 60.0,
    Part.DEAD_LETTERS: 60.0,
    Part.OBSTACLES: 30.0,
    Part.REMOVALS: 60.0,
}
"""Seconds after which a part that was not read again is stale."""

FIGURES: Mapping[str, Part] = {
    "committed": Part.OUTBOX,
    "committed_s": Part.OUTBOX,
    "published": Part.RELAY,
    "published_s": Part.RELAY,
    "waiting": Part.RELAY,
    "latency_p50_ms": Part.RELAY,
    "latency_p99_ms": Part.RELAY,
    "lag_s": Part.RELAY,
    "headroom_s": Part.RELAY,
    "partitions": Part.RELAY,
    "recent": Part.RECENT,
    "quarantined": Part.QUARANTINE,
    "parked": Part.QUARANTINE,
    "quarantine": Part.REASONS,
    "subscriptions": Part.SUBSCRIPTIONS,
    "dead_letters": Part.DEAD_LETTERS,
    "obstacles": Part.OBSTACLES,
    "removals": Part.REMOVALS,
}
"""The part that each figure is read with, by its name in `model.Flow` or `model.Snapshot`."""


class Freshness:
    """When each part was read."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: dict[Part, float] = {}
        self._ended: dict[Part, float] = {}
        self._failed: set[Part] = set()

    def note(self, part: Part, at: float, whole: bool) -> None:
        """Note that a reading which began at this time has ended: with all of the part, or not."""
        self._ended[part] = self._clock()
        if whole:
            self._at[part] = at
            self._failed.discard(part)
        else:
            self._failed.add(part)

    def known(self, part: Part) -> Known:
        at = self._at.get(part)
        if at is None:
            return Known()
        return Known(at, part in self._failed or self._clock() - at > STALE_AFTER_S[part])

    def is_answered(self) -> bool:
        """Return True if each part of the figures was read lately, or its reading has failed."""
        now = self._clock()
        parts = set(FIGURES.values())
        return all(part in self._ended and now - self._ended[part] <= STALE_AFTER_S[part] for part in parts)

    def figures(self) -> dict[str, Known]:
        """Return the time at which each figure was known, by its name."""
        known = {part: self.known(part) for part in Part}
        return {figure: known[part] for figure, part in FIGURES.items()}
