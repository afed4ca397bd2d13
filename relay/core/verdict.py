"""The verdict: what becomes of an event, and every threshold behind it.

Pure: no I/O, no clock and no state. What is known of an event is passed in, so the tables of docs/guarantees.md
("The verdict on an event") can be compared with this module row by row. Nothing else in the relay decides whether
an event is published, waits, or is set aside.

A verdict is given before an event is sent (`before_sending`; `relay.core.plan` asks for a whole batch), and again
when Service Bus has refused it (`after_refusal`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relay.config.settings import OnPoison
from relay.core.errors import BlockedError, DoubtfulRefusalError, PoisonError, RefusedAlikeError, SendError
from relay.core.events import Event, Reason, Rejected
from relay.core.holds import Order
from relay.core.remedy import SET_ANY_ASIDE

# Number of refusals of one event, with another transfer accepted between each two of them, after which the
# event's own content counts as the cause.
REFUSALS = 3

# Partition keys refused with one condition from which on the cause may be something that they share.
ALIKE = 3

# Ends of a link with one transfer alone in flight, from which on that transfer is the cause, provided that the
# service accepts others: a second one is no coincidence.
ENDS_ALONE = 2

# The attempt from which on a temporary error is traced to the one event that causes it: the third retry.
_ISOLATE_FROM = 3


class Ruling(StrEnum):
    """The verdict on an event."""

    PUBLISH = "publish"
    ACCEPTED = "accepted"
    SUPERSEDED = "superseded"
    SET_ASIDE = "set aside"
    WAIT = "wait"


class Awaited(StrEnum):
    """The reason that an event waits."""

    EVIDENCE = "evidence"
    ORDER = "an order"
    PREDECESSOR = "a predecessor"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one event: why it is set aside, or what it waits for.

    `alike` says that it waits because other partition keys are refused with the same condition.
    """

    ruling: Ruling
    reason: Reason | None = None
    awaited: Awaited | None = None
    alike: bool = False


PUBLISH = Verdict(Ruling.PUBLISH)
ACCEPTED = Verdict(Ruling.ACCEPTED)
SUPERSEDED = Verdict(Ruling.SUPERSEDED)
FOR_EVIDENCE = Verdict(Ruling.WAIT, awaited=Awaited.EVIDENCE)
ALIKE_FOR_EVIDENCE = Verdict(Ruling.WAIT, awaited=Awaited.EVIDENCE, alike=True)
FOR_AN_ORDER = Verdict(Ruling.WAIT, awaited=Awaited.ORDER)
FOR_A_PREDECESSOR = Verdict(Ruling.WAIT, awaited=Awaited.PREDECESSOR)


def set_aside(reason: Reason) -> Verdict:
    """Return the verdict that sets an event aside."""
    return Verdict(Ruling.SET_ASIDE, reason)


# Before sending


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts about one document before anything is sent.

    Attributes:
        accepted: Service Bus has accepted it from this process.
        passed: The checkpoint has passed it: it was published, or set aside.
        invalid: Why it can never become a message; None for a sound event.
        has_key: Whether it has a partition key to be ordered by.
        parked: Whether its key is parked, and it is not before the event that parked it.
        earlier: The verdict on the first earlier document of its key that holds back what follows, if any.
    """

    accepted: bool
    passed: bool
    order: Order | None
    invalid: Reason | None
    has_key: bool
    parked: bool
    earlier: Verdict | None


def before_sending(standing: Standing, policy: OnPoison) -> Verdict:
    """Return the verdict on a document that has not been sent in this attempt."""
    if standing.accepted:
        return ACCEPTED
    if standing.passed or (standing.order is not None and standing.order.carried_out):
        return SUPERSEDED
    if standing.order is not None:
        return set_aside(standing.invalid or standing.order.reason)
    if standing.invalid is not None:
        blocks = policy is OnPoison.BLOCK and standing.has_key
        return FOR_AN_ORDER if blocks else set_aside(standing.invalid)
    if policy is OnPoison.PARK and (standing.parked or standing.earlier is not None):
        return set_aside(Reason.KEY_PARKED)
    return PUBLISH if standing.earlier is None else FOR_A_PREDECESSOR


def holds_back(verdict: Verdict, policy: OnPoison) -> bool:
    """Return True if a verdict on a document concerns those behind it in its partition key."""
    return verdict.ruling is Ruling.WAIT or (policy is OnPoison.PARK and verdict.ruling is Ruling.SET_ASIDE)


# After a refusal


@dataclass(frozen=True, slots=True)
class History:
    """This process's record of a refused event and of its neighbours, at one destination.

    Attributes:
        refusals: Number of times the event was refused; with nothing accepted in between, refusals count once.
        alike: Partition keys refused with the same condition since the event was first refused, its own included.
        accepted: Transfers accepted since the attempt began in which it was first refused; repeats do not count.
    """

    refusals: int
    alike: int
    accepted: int


def after_refusal(refusal: PoisonError, history: History, policy: OnPoison) -> Verdict:
    """Return the verdict on an event that Service Bus has refused."""
    if refusal.condition:
        if history.alike >= ALIKE and history.accepted < history.alike:
            return ALIKE_FOR_EVIDENCE
        if history.refusals < REFUSALS:
            return FOR_EVIDENCE
    return FOR_AN_ORDER if policy is OnPoison.BLOCK else set_aside(reason_of(refusal))


@dataclass(frozen=True, slots=True)
class Judge:
    """Gives the verdict on refused events during one attempt.

    Attributes:
        policy: The treatment of events after a poisoned one.
        needs_evidence: False if a refused event stays where it is, as in a release: then one refusal decides.
    """

    policy: OnPoison = OnPoison.SKIP
    needs_evidence: bool = True

    def refused(self, refusal: PoisonError, history: History) -> Verdict:
        """Return the verdict on an event that Service Bus has refused."""
        if not self.needs_evidence:
            return set_aside(reason_of(refusal))
        return after_refusal(refusal, history, self.policy)

    @property
    def stops_behind(self) -> bool:
        """True if the events behind one that is set aside are held back."""
        return self.policy is not OnPoison.SKIP


def error_of(verdict: Verdict, event: Event, refusal: PoisonError) -> SendError:
    """Return the error of the event's partition key for a verdict to wait; it names the remedy."""
    if verdict.awaited is Awaited.ORDER:
        return blocked(rejected(event, refusal))
    if verdict.alike:
        return RefusedAlikeError(
            f"{ALIKE} partition keys or more were refused alike ({refusal.condition}), and fewer transfers than "
            "that were accepted: the cause may not be the content of an event, so nothing is quarantined. See "
            f"what has changed at the topic or in the settings. Service Bus said: {refusal} An event that "
            "has to be set aside all the same: `",
            SET_ANY_ASIDE,
            "`.",
        )
    return DoubtfulRefusalError(
        f"{refusal} It is not certain yet that the content of this event is the cause: it is tried again "
        "before it is set aside."
    )


def reason_of(refusal: PoisonError) -> Reason:
    """Return the reason for which a refused event would be set aside."""
    return Reason.MESSAGE_TOO_LARGE if refusal.too_large else Reason.MESSAGE_REFUSED


def rejected(event: Event, refusal: PoisonError) -> Rejected:
    """Return a refused event as it is set aside."""
    return Rejected.of(event, reason_of(refusal), str(refusal), refusal.condition or None)


def blocked(poisoned: Rejected) -> BlockedError:
    """Return the error that holds up the partition key of a poisoned event if RELAY_ON_POISON is `block`."""
    return BlockedError(
        f"the event {poisoned.id!r} can never be published ({poisoned}), and RELAY_ON_POISON is 'block'. "
        "Set it aside with `",
        SET_ANY_ASIDE,
        "`, and its key goes on without it.",
    )


def isolates(retry_count: int) -> bool:
    """Return True if this attempt takes a batch apart.

    It does so for an error that may pass, to find the event that causes it.
    """
    return retry_count >= _ISOLATE_FROM
