"""The brake on mass quarantine: what many partition keys are refused for alike is not the content of one event."""

from __future__ import annotations

from collections.abc import Sequence

from relay.errors import RefusedAlikeError
from relay.results import KeyOutcome

# That many partition keys refused alike, while no more than that get through, are no coincidence.
_ALIKE = 3


class Brake:
    """Judges what Service Bus has refused, before any of it is quarantined; one for a process.

    A wrong rule of the service, a wrong limit or a wrong property of every message is answered with the same
    condition for every event. An event whose own content is at fault stands among others that are accepted.
    Refusals are remembered until as many keys get through again, as invocations with one key each tell nothing
    alone.
    """

    def __init__(self) -> None:
        self._refused: dict[str, set[str]] = {}

    def judge(self, outcomes: Sequence[KeyOutcome]) -> None:
        """Turn refusals that are no poison into failures: their events count as unsent, and are retried.

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
