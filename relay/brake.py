"""The brake on mass quarantine: many partition keys refused alike are not the fault of one event."""

from __future__ import annotations

from collections.abc import Sequence

from relay.errors import RefusedAlikeError
from relay.results import KeyOutcome

# This many partition keys refused alike, while no more than that are accepted, are no coincidence.
_ALIKE = 3


class Brake:
    """Judges refusals by Service Bus before any event is quarantined; one for a process.

    A wrong rule or limit of the service, or a wrong property of every message, is answered with the same condition
    for every event. An event that is refused for its own content is surrounded by others that are accepted.
    Refusals are kept until as many keys are accepted again, because an invocation with a single key is not enough
    to judge by.
    """

    def __init__(self) -> None:
        self._refused: dict[str, set[str]] = {}

    def judge(self, outcomes: Sequence[KeyOutcome]) -> None:
        """Turn refusals that are not poison into failures: their events count as unsent, and are retried.

        What was refused before a later event of its key was accepted stays rejected: the key gets through.
        """
        accepted = sum(1 for outcome in outcomes if outcome.published)
        alike: dict[str, set[str]] = {}
        for outcome in outcomes:
            for rejected in outcome.rejected:
                if rejected.condition is not None:
                    alike.setdefault(rejected.condition, set()).add(outcome.partition_key)
        if accepted >= max(map(len, alike.values()), default=0):
            if accepted:
                self._refused.clear()
            return
        for condition, keys in alike.items():
            refused = self._refused.setdefault(condition, set())
            if len(refused) < _ALIKE:
                refused |= keys
            if len(refused) >= _ALIKE:
                _withhold(outcomes, condition, len(keys))


def _withhold(outcomes: Sequence[KeyOutcome], condition: str, keys: int) -> None:
    for outcome in outcomes:
        refused = [each for each in outcome.rejected if each.condition == condition]
        if not refused or outcome.accepted_after_rejection:
            continue
        error = RefusedAlikeError(
            f"{keys} partition key(s) of this attempt were refused alike ({condition}), and no more than that got "
            "through: the cause is not the content of an event, so nothing of it is quarantined. See what has "
            f"changed at the topic or in the settings. Service Bus said: {refused[0].detail} An event that has to "
            "be set aside all the same: `python -m relay quarantine add KEY ID`."
        )
        outcome.withhold(error, blocked_by=refused[0].id if len(refused) == 1 else None)
