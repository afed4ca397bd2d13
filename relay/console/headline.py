"""The state of the whole relay in one sentence: the most serious thing first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from relay.console.formats import count, span, visible
from relay.console.model import Snapshot

# Events wait for as long as a poll of the outbox and a send take.
_USUAL_LAG_S = 5.0
_SHORT_HEADROOM_S = 3600.0


class Level(StrEnum):
    """What the sentence asks of its reader: nothing, to look, or to act."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence, and how serious it is."""

    level: Level
    text: str


def headline(snapshot: Snapshot) -> Headline:
    """The most serious of what a snapshot says."""
    flow = snapshot.flow
    if not snapshot.number:
        return Headline(Level.OK, "The outbox is being read.")
    if flow.headroom_s is not None and flow.headroom_s < _SHORT_HEADROOM_S:
        return Headline(
            Level.ERROR,
            f"The first of {_events(flow.waiting)} that wait is deleted by its time to live in "
            f"{span(flow.headroom_s)}.",
        )
    retried = [each for each in snapshot.partitions if each.retry is not None]
    if retried:
        name, others = visible(retried[0].name), len(retried) - 1
        who = f"Partition {name} and {count(others)} more are" if others else f"Partition {name} is"
        return Headline(Level.ERROR, f"{who} being retried: see the error below.")
    if snapshot.problems:
        return Headline(
            Level.WARNING, f"Not everything could be read ({visible(snapshot.problems[0].what)}): see below."
        )
    if flow.lag_s > _USUAL_LAG_S:
        return Headline(Level.WARNING, f"{_events(flow.waiting)} wait, the oldest for {span(flow.lag_s)}.")
    aside = _aside(snapshot)
    if aside:
        return Headline(Level.WARNING, aside)
    if flow.waiting:
        return Headline(Level.OK, f"{_events(flow.waiting)} on the way to the topic.")
    return Headline(Level.OK, "Every committed event has been accepted by the topic.")


def _aside(snapshot: Snapshot) -> str:
    dead = sum(each.dead_lettered for each in snapshot.subscriptions)
    parts = [
        f"{_plural(number, one, many)}"
        for number, one, many in (
            (snapshot.flow.quarantined, "record in quarantine", "records in quarantine"),
            (snapshot.flow.parked, "parked key", "parked keys"),
            (dead, "dead-lettered message", "dead-lettered messages"),
        )
        if number
    ]
    return f"{', '.join(parts)}." if parts else ""


def _events(number: int) -> str:
    return _plural(number, "event", "events")


def _plural(number: int, one: str, many: str) -> str:
    return f"{count(number)} {one if number == 1 else many}"
