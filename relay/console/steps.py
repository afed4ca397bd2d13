"""The steps of one event in its key's timeline, from the commit to each subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.console.formats import written
from relay.console.model import Arrival, Delivery, Stage, Tracked


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to an event, or is still to happen.

    Attributes:
        kind: `committed`, `accepted`, `quarantined`, `parked`, `waiting`, `delivered` or `dead-lettered`; the page
            has a class for each.
        label: What happened, in words.
        at: When; None where that is not known or not yet.
        written_at: When, where the record says it in words of its own.
        after_s: How long after the step before it; None where either time is not known.
        where: The subscription.
        why: A reason and its detail.
        done: Whether it has happened.
    """

    kind: str
    label: str
    at: float | None = None
    written_at: str | None = None
    after_s: float | None = None
    where: str | None = None
    why: str | None = None
    done: bool = True


def steps(tracked: Tracked) -> Sequence[Step]:
    """Every step of an event that the console knows of, and the one that it waits for."""
    committed_at = tracked.event.committed_at if tracked.event is not None else None
    found = [Step("committed", "Committed", committed_at)] if tracked.event is not None else []
    return [*found, *_set_aside(tracked), *_sent(tracked, committed_at)]


def _set_aside(tracked: Tracked) -> Sequence[Step]:
    if tracked.stage not in (Stage.QUARANTINED, Stage.PARKED):
        return []
    parked, record = tracked.stage is Stage.PARKED, tracked.quarantined
    return [
        Step(
            "parked" if parked else "quarantined",
            "Parked" if parked else "Quarantined",
            written_at=written(record.quarantined_at) if record else None,
            why=f"{record.reason}: {record.detail}" if record else None,
        )
    ]


def _sent(tracked: Tracked, committed_at: float | None) -> Sequence[Step]:
    accepted_at = _accepted_at(tracked)
    arrived = [_arrived(each, accepted_at) for each in tracked.deliveries]
    if tracked.stage is Stage.PUBLISHED or accepted_at is not None:
        return [Step("accepted", "Accepted", accepted_at, after_s=_between(committed_at, accepted_at)), *arrived]
    if tracked.stage is Stage.COMMITTED and not arrived:
        return [Step("accepted", "Not yet accepted", done=False)]
    return arrived


def _accepted_at(tracked: Tracked) -> float | None:
    """The broker's own time where a subscription has it."""
    times = [each.accepted_at for each in tracked.deliveries if each.accepted_at is not None]
    return min(times) if times else tracked.published_at


def _arrived(delivery: Delivery, accepted_at: float | None) -> Step:
    tries = f"{delivery.deliveries} deliveries" if delivery.deliveries and delivery.deliveries > 1 else None
    why = ", ".join(each for each in (delivery.reason, tries) if each) or None
    label = {
        Arrival.WAITING: "Waiting",
        Arrival.DELIVERED: "Delivered",
        Arrival.DEAD_LETTERED: "Dead-lettered",
    }[delivery.arrival]
    return Step(
        str(delivery.arrival),
        label,
        delivery.at,
        after_s=_between(accepted_at, delivery.at),
        where=delivery.subscription,
        why=why,
        done=delivery.arrival is not Arrival.WAITING,
    )


def _between(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(second - first, 0.0)
