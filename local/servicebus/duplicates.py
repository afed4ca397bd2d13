"""Duplicate detection: what was accepted within the window, and nothing older."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from .agenda import Clock


class DuplicateHistory:
    """Remembers keys for `window_ms` milliseconds from when each was first accepted."""

    def __init__(self, window_ms: int, clock: Clock) -> None:
        self._window_ms = window_ms
        self._clock = clock
        self._seen: set[Hashable] = set()
        self._by_age: deque[tuple[int, Hashable]] = deque()

    def __len__(self) -> int:
        self._forget(self._clock())
        return len(self._seen)

    def is_new(self, key: Hashable) -> bool:
        """Tell whether `key` was not accepted within the window, and remember it if so."""
        now = self._clock()
        self._forget(now)
        if key in self._seen:
            return False
        self._seen.add(key)
        self._by_age.append((now + self._window_ms, key))
        return True

    def _forget(self, now: int) -> None:
        while self._by_age and self._by_age[0][0] <= now:
            self._seen.discard(self._by_age.popleft()[1])
