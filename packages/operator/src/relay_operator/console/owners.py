"""The owners of partitions: whether each is alive, and until when its lease or claim lasts if it is not."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from relay.backends.outbox import Position

# After a longer pause in reading, a renewal may have been missed.
_PAUSE_S = 5.0

# An owner renews its lease or claim at least twice in the time for which it is held.
_SILENT = 0.5


@dataclass(frozen=True, slots=True)
class _Seen:
    """A renewal: `sign` is the owner with the value of the renewal, `at` when it was seen first."""

    sign: Hashable
    at: float
    held_s: float


class Owners:
    """The last renewal of each partition, as this process has seen it, by its own clock alone."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Seen] = {}
        self._read_at = -math.inf

    def note(self, positions: Iterable[Position], now: float) -> None:
        """Note the positions that were read now."""
        before = self._seen if now - self._read_at <= _PAUSE_S else {}
        self._read_at = now
        owned = [each for each in positions if each.owner is not None and each.renewal is not None]
        self._seen = {each.name: _noted(each, before.get(each.name), now) for each in owned}

    def held_s(self, name: str, now: float, ended_at: float | None) -> int | None:
        """Return the seconds within which the partition is free of an owner that is gone; negative afterwards.

        Args:
            name: The partition.
            now: The current time.
            ended_at: When the owner has ended; None if that is not known.

        Returns:
            None if there is no owner, or if it is alive, as far as is known.
        """
        seen = self._seen.get(name)
        if seen is None or math.isinf(seen.held_s):
            return None
        silent_s = now - (seen.at if ended_at is None else min(ended_at, seen.at))
        is_gone = ended_at is not None or silent_s > seen.held_s * _SILENT
        return math.ceil(seen.held_s - silent_s) if is_gone else None


def _noted(position: Position, before: _Seen | None, now: float) -> _Seen:
    sign = (position.owner, position.renewal)
    return before if before is not None and before.sign == sign else _Seen(sign, now, position.held_s)
