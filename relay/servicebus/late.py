"""Transfers that the service answers after the send timeout."""

from __future__ import annotations

from relay.errors import RetryableError

GRACE_S = 30.0
"""Seconds for which the link of a transfer that was given up is kept, so that a late acceptance is still noted."""


class Late:
    """What is known of acceptances that came after the timeout."""

    def __init__(self) -> None:
        self._longest_s = 0.0

    def note(self, seconds: float) -> None:
        """A transfer was accepted after `seconds`, when its sender had given up."""
        self._longest_s = max(self._longest_s, seconds)

    def unanswered(self, timeout_s: float) -> RetryableError:
        """The error of a transfer that was not answered within `timeout_s` seconds."""
        said = f"Service Bus did not answer within RELAY_SEND_TIMEOUT_S ({timeout_s:.3g} s)"
        if self._longest_s > timeout_s:
            said += f"; it accepted an earlier transfer after {self._longest_s:.1f} s: set a larger value"
        return RetryableError(f"{said}.")
