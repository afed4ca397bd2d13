"""The health of a worker: its loop still runs, and it can reach its database."""

from __future__ import annotations

import time
from collections.abc import Callable

# Time limit for one round of the loop, in addition to three claims, in seconds: connecting takes up to 60 s, and
# so may a token.
_ROUND_S = 120.0


class Health:
    """When the last round ended, and when the claims were last read, on a clock that does not step."""

    def __init__(self, claim_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = _ROUND_S + 3 * claim_s
        self._clock = clock
        self._ended_s = clock()
        self._read_s: float | None = None

    def round_ended(self, *, claims_read: bool) -> None:
        """Record the end of a round. An outage of the database ends it without the claims."""
        self._ended_s = self._clock()
        if claims_read:
            self._read_s = self._ended_s

    def stalled(self) -> str | None:
        """Return the reason why a restart would help, or None while rounds end.

        An outage of the database is no reason.
        """
        age_s = self._clock() - self._ended_s
        if age_s <= self._limit_s:
            return None
        return f"no look at the claims has ended for {age_s:.0f} s"

    def unready(self) -> str | None:
        """Return the reason why the worker does not share in the work, or None if it read the claims lately."""
        if self._read_s is None:
            return "the claims have not been read yet"
        age_s = self._clock() - self._read_s
        return None if age_s <= self._limit_s else f"the claims were last read {age_s:.0f} s ago"
