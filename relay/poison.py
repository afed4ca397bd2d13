"""What becomes of a partition key's later events when one of its events is poisoned: RELAY_ON_POISON.

| value   | the poisoned event | what follows it in its key                                                  |
|---------|--------------------|-----------------------------------------------------------------------------|
| `skip`  | quarantined        | is published: the key's order has a gap                                     |
| `park`  | quarantined        | is quarantined too, in order, until an operator releases or discards it     |
| `block` | stays              | waits, and with it the checkpoint of the lease; an operator sets it aside   |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relay.errors import BlockedError
from relay.events import Event, Reason, Received, Rejected, by_partition_key
from relay.holds import Holds
from relay.results import KeyOutcome
from relay.settings import OnPoison


@dataclass(slots=True)
class Plan:
    """What an attempt sends, and what it does not.

    Attributes:
        to_publish: Events by partition key, each list in commit order.
        rejected: What is to be quarantined, as far as is known before anything is sent.
        behind: Events that are not sent, as an earlier one of their key is in quarantine or on its way there.
    """

    to_publish: dict[str, list[Event]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    behind: dict[str, list[Event]] = field(default_factory=dict)


def plan(received: Received, holds: Holds, policy: OnPoison, accepted: Callable[[Event], bool]) -> Plan:
    """Group the events by partition key, and keep back what must not be sent.

    Args:
        received: What came.
        holds: What operators and earlier attempts hold back.
        policy: What follows a poisoned event.
        accepted: Whether Service Bus has an event already; such a one is not parked.
    """
    made = Plan(rejected=list(received.rejected))
    to_go: list[Event] = []
    for event in received.events:
        if holds.set_aside and event.name in holds.set_aside and not accepted(event):
            made.rejected.append(Rejected.of(event, Reason.SET_ASIDE, "set aside by an operator"))
        else:
            to_go.append(event)
    stops = _stops(made.rejected, policy)
    parked = holds.parked if policy is OnPoison.PARK else frozenset()
    for key, events in by_partition_key(to_go).items():
        if key not in parked and key not in stops:
            made.to_publish[key] = events
            continue
        stop = -1 if key in parked else stops[key]
        for event in events:
            stopped = event.position > stop and not accepted(event)
            (made.behind if stopped else made.to_publish).setdefault(key, []).append(event)
    return made


def _stops(rejected: Sequence[Rejected], policy: OnPoison) -> dict[str, int]:
    """By partition key, the place of the first rejected document that holds back what follows."""
    stops: dict[str, int] = {}
    for item in rejected:
        key = item.partition_key
        if key is not None and _holds_back(item, policy):
            stops[key] = min(item.position, stops.get(key, item.position))
    return stops


def _holds_back(item: Rejected, policy: OnPoison) -> bool:
    # What an operator has set aside is what the key was blocked by.
    return policy is OnPoison.PARK or (policy is OnPoison.BLOCK and item.reason is not Reason.SET_ASIDE)


def conclude(made: Plan, outcomes: list[KeyOutcome], policy: OnPoison) -> list[Rejected]:
    """What is to be quarantined after all, in the order in which it is to be released again.

    With `block`, the outcomes of blocked partition keys get an error and their events count as unsent.
    """
    rejected = list(made.rejected)
    for outcome in outcomes:
        if not outcome.rejected:
            # Nothing is held back in its key either.
            continue
        if policy is OnPoison.BLOCK:
            _block(outcome, outcome.rejected[0])
        rejected += outcome.rejected
        if policy is OnPoison.PARK:
            rejected += map(_parked, outcome.held_back)
    if policy is OnPoison.PARK:
        rejected += [_parked(event) for events in made.behind.values() for event in events]
        rejected = _behind_failures(rejected, outcomes)
    if policy is OnPoison.BLOCK:
        rejected = _blocked_by_documents(rejected, made, outcomes)
    return sorted(rejected, key=lambda item: item.position)


def _behind_failures(rejected: list[Rejected], outcomes: list[KeyOutcome]) -> list[Rejected]:
    """What is behind an event that is still to be sent must not park its key before that: it waits with it."""
    failed = {outcome.partition_key: outcome for outcome in outcomes if outcome.error is not None}
    rest = []
    for item in rejected:
        if item.partition_key in failed:
            failed[item.partition_key].unsent += 1
        else:
            rest.append(item)
    return rest


def _parked(event: Event) -> Rejected:
    return Rejected.of(event, Reason.KEY_PARKED, "an earlier event of its partition key is in quarantine")


def _blocked_by_documents(rejected: list[Rejected], made: Plan, outcomes: list[KeyOutcome]) -> list[Rejected]:
    """Block the keys of invalid documents; returns what has no key to block, or was set aside."""
    by_key = {outcome.partition_key: outcome for outcome in outcomes}
    rest = []
    for item in rejected:
        key = item.partition_key
        if key is None or not _holds_back(item, OnPoison.BLOCK):
            rest.append(item)
            continue
        if key not in by_key:
            by_key[key] = KeyOutcome(key)
            outcomes.append(by_key[key])
        by_key[key].unsent += 1
        if by_key[key].error is None:
            _block(by_key[key], item)
    for key, events in made.behind.items():
        by_key[key].unsent += len(events)
    return rest


def _block(outcome: KeyOutcome, poisoned: Rejected) -> None:
    outcome.withhold(
        BlockedError(
            f"the event {poisoned.id!r} can never be published ({poisoned}), and RELAY_ON_POISON is 'block'. "
            "Set it aside with `python -m relay quarantine add KEY ID`, and its key goes on without it."
        ),
        blocked_by=poisoned.id,
    )
