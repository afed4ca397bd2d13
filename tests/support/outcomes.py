"""The sums of a partition key's outcome."""

from __future__ import annotations

from relay.results import KeyOutcome


def accounted_for(outcome: KeyOutcome) -> int:
    """How many events the outcome counts, each once."""
    return outcome.published + outcome.unsent + len(outcome.rejected) + len(outcome.held_back)
