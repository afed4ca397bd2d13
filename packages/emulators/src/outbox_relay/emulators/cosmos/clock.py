"""The account's time, which a test can control."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Whole seconds since 1970 that never decrease, as `_ts` must not within a change feed."""

    def __init__(self, source: Callable[[], float] = time.time) -> None:
        self._source = source
        self._latest = 0

    def seconds(self) -> int:
        self._latest = max(self._latest, int(self._source()))
        return self._latest
