"""How many requests for a session are open at a time. No I/O."""

from __future__ import annotations

FEWEST = 4
"""Open requests of a receiver that has had nothing to do. Each is a connection."""

_SOON_S = 3.0
"""A session that comes this soon shows that more may wait. To open a connection takes the SDK half a second, and
longer if it opens many."""


class AcceptWindow:
    """Doubles while sessions come soon, and is the smallest again when a request has found none.

    Args:
        sessions: Maximum number of sessions that are handled or waited for.
    """

    def __init__(self, sessions: int) -> None:
        self._sessions = sessions
        self._fewest = min(FEWEST, sessions)
        self._ahead = self._fewest

    def wanted(self, busy: int) -> int:
        """Return the number of requests to keep open beside this number of sessions that are handled."""
        return min(self._ahead, self._sessions - busy)

    def came(self, after_s: float) -> None:
        """Note that a session came this many seconds after it was asked for."""
        if after_s < _SOON_S:
            self._ahead = min(self._sessions, 2 * self._ahead)

    def none_came(self) -> None:
        """Note that a request found no session with messages."""
        self._ahead = self._fewest
