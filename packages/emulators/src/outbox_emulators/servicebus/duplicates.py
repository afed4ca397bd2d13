"""Duplicate detection: the keys that were accepted within the window."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Hashable
from operator import itemgetter

from outbox_emulators.servicebus.timers import Clock


class DuplicateHistory:
    """Keeps keys for `window_ms` milliseconds from when each was first accepted.

    The window may be changed; a key keeps the window under which it was accepted.
    """

    def __init__(self, window_ms: int, clock: Clock) -> None:
        self.window_ms = window_ms
        self._clock = clock
        self._seen: set[Hashable] = set()
        self._by_age: deque[tuple[int, Hashable]] = deque()

    def __len__(self) -> int:
        self._expire(self._clock())
        return len(self._seen)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether `key` was accepted within the window."""
        self._expire(self._clock())
        return key in self._seen

    def is_new(self, key: Hashable) -> bool:
        """Return whether `key` is new within the window; from now on it is not."""
        now = self._clock()
        self._expire(now)
        if key in self._seen:
            return False
        self._seen.add(key)
        until = now + self.window_ms
        if self._by_age and until < self._by_age[-1][0]:
            # Only after the window was made shorter: otherwise what is accepted later expires later.
            insort(self._by_age, (until, key), key=itemgetter(0))
        else:
            self._by_age.append((until, key))
        return True

    def clear(self) -> None:
        """Drop all keys."""
        self._seen.clear()
        self._by_age.clear()

    def _expire(self, now: int) -> None:
        while self._by_age and self._by_age[0][0] <= now:
            self._seen.discard(self._by_age.popleft()[1])
