"""A batch: the verdict on each of its documents before anything is sent, and what follows from what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from relay.config.settings import OnPoison
from relay.core.events import Event, Reason, Received, Rejected, by_partition_key
from relay.core.holds import Holds
from relay.core.results import KeyFailure, KeyOutcome, Outcome, by_reason
from relay.core.verdict import Ruling, Standing, Verdict, before_sending, blocked, holds_back


@dataclass(frozen=True, slots=True)
class Blocked:
    """A partition key that an invalid document holds up: the first such, and how many documents wait, with it."""

    by: Rejected
    waiting: int


@dataclass(slots=True)
class Plan:
    """The verdicts on a batch, before anything is sent.

    Attributes:
        to_publish: Events by partition key, each list in commit order.
        set_aside: The documents to quarantine, by partition key; None for documents without one.
        accepted: Number of events that Service Bus had accepted before.
        superseded: Number of documents that the checkpoint has passed, or an earlier attempt has set aside.
    """

    policy: OnPoison
    to_publish: dict[str, list[Event]] = field(default_factory=dict)
    set_aside: dict[str | None, list[Rejected]] = field(default_factory=dict)
    blocked: dict[str, Blocked] = field(default_factory=dict)
    accepted: int = 0
    superseded: int = 0


def plan(
    received: Received,
    policy: OnPoison,
    holds: Holds,
    passed: Set[int],
    accepted: Callable[[Event], bool],
) -> Plan:
    """Give the verdict on each document of a batch.

    `passed` are the positions of the documents that the checkpoint has passed; `accepted` says whether Service Bus
    has accepted an event from this process.
    """
    made = Plan(policy)
    if not (received.rejected or holds or passed):
        # Nothing is rejected, held or passed: only skip the events that were accepted before.
        pending = [event for event in received.events if not accepted(event)]
        made.to_publish = by_partition_key(pending)
        made.accepted = len(received.events) - len(pending)
        return made
    earlier: dict[str, Verdict] = {}
    documents: list[Event | Rejected] = [*received.events, *received.rejected]
    for document in sorted(documents, key=_position):
        key = document.partition_key
        order = holds.order_for(document)
        verdict = before_sending(
            Standing(
                accepted=isinstance(document, Event) and accepted(document),
                passed=document.position in passed,
                order=order,
                invalid=None if isinstance(document, Event) else document.reason,
                has_key=key is not None,
                parked=holds.parks(document),
                earlier=None if key is None else earlier.get(key),
            ),
            policy,
        )
        if key is not None and key not in earlier and holds_back(verdict, policy):
            earlier[key] = verdict
        _enter(made, document, verdict, _BEHIND if order is None else order.detail)
    return made


def _enter(made: Plan, document: Event | Rejected, verdict: Verdict, detail: str) -> None:
    key = document.partition_key
    if verdict.ruling is Ruling.ACCEPTED:
        made.accepted += 1
    elif verdict.ruling is Ruling.SUPERSEDED:
        made.superseded += 1
    elif verdict.ruling is Ruling.SET_ASIDE:
        made.set_aside.setdefault(key, []).append(_rejected(document, verdict, detail))
    elif key is not None and verdict.ruling is Ruling.WAIT:
        before = made.blocked.get(key)
        # Before anything is sent, only an invalid document blocks a key; events wait behind it.
        by = before.by if before is not None else _rejected(document, verdict, detail)
        made.blocked[key] = Blocked(by, before.waiting + 1 if before is not None else 1)
    elif isinstance(document, Event):
        made.to_publish.setdefault(document.partition_key, []).append(document)


def _rejected(document: Event | Rejected, verdict: Verdict, detail: str) -> Rejected:
    if isinstance(document, Rejected):
        return document
    return Rejected.of(document, verdict.reason or Reason.SET_ASIDE, detail)


# The detail of an event that is set aside because of its predecessor.
_BEHIND = "an earlier event of its partition key is in quarantine"


def _position(document: Event | Rejected) -> int:
    return document.position


def combine(made: Plan, received: Received, outcomes: Sequence[KeyOutcome]) -> Outcome:
    """Combine the plan with the results. Raises AccountingError if they do not add up."""
    aside = list(made.set_aside.get(None, ()))
    failed: list[KeyFailure] = []
    # Of a key whose events were all published, nothing follows.
    by_key = {
        outcome.partition_key: outcome
        for outcome in outcomes
        if outcome.error is not None or outcome.rejected or outcome.held_back
    }
    for key in dict.fromkeys((*by_key, *made.set_aside, *made.blocked)):
        if key is None:
            continue
        outcome, planned = by_key.get(key) or KeyOutcome(key), made.set_aside.get(key, [])
        error, blocked_by, unsent = outcome.error, outcome.blocked_by, outcome.unsent
        if made.policy is OnPoison.PARK and error is not None:
            # Documents to park wait for the events that are still to be sent before them.
            unsent += len(planned)
            planned = []
        aside += planned
        aside += outcome.rejected
        if made.policy is OnPoison.PARK:
            aside += [Rejected.of(event, Reason.KEY_PARKED, _BEHIND) for event in outcome.held_back]
        if (block := made.blocked.get(key)) is not None:
            unsent += block.waiting
            if error is None:
                error, blocked_by = blocked(block.by), block.by.id
        if error is not None:
            failed.append(KeyFailure(key, unsent, error, blocked_by))
    aside.sort(key=_position)
    return Outcome(
        documents=received.documents,
        ignored=received.ignored,
        published=sum(key.published for key in outcomes),
        already_published=made.accepted,
        superseded=made.superseded,
        quarantined=by_reason(aside),
        unsent=sum(key.unsent for key in failed),
        partition_keys=len(outcomes),
        sends=sum(key.sends for key in outcomes),
        failed=failed,
        set_aside=aside,
    )
