"""The state of the whole relay in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outbox_relay.operator.console.formatting import clock, count, plural, prose, sentence, short, span, visible
from outbox_relay.operator.console.freshness import FIGURES
from outbox_relay.operator.console.model import Flow, Partition, Snapshot
from outbox_relay.operator.reasons import AT_A_GLANCE, RECOVERY, RUNBOOK, State
from relay.backends.findings import Level

USUAL_LAG_S = 5.0
"""Events wait for as long as a poll of the outbox and a send take."""

SHORT_HEADROOM_S = 3600.0

# Hosts look for leases that nobody has every 13 s.
_BETWEEN_OWNERS_S = 30.0

# The readings without which it is not known what waits.
_OF_RELAY = frozenset({"outbox", "positions", "quarantine"})

# Maximum number of partitions that are named.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Headline:
    """The state of the whole relay in one sentence.

    Attributes:
        level: Whether its reader has nothing to do, should look, or has to act.
        state: The state that it reports; None for one without a remedy of its own.
        section: The section of docs/runbook.md about it; None for one that needs nobody.
    """

    level: Level
    text: str
    state: State | None = None
    section: str | None = None

    @classmethod
    def of(cls, level: Level, text: str, state: State) -> Headline:
        """Return the sentence about a state, with the state's section of the runbook."""
        return cls(level, text, state, RUNBOOK[state])


def headline(snapshot: Snapshot) -> Headline:
    """Return the most serious state of a snapshot."""
    return next(_states(snapshot))


def stale_since(snapshot: Snapshot) -> str:
    """Describe since when some figure is not current; empty if all are.

    It is `incomplete` if one was never read.
    """
    stale = [known for known in map(snapshot.known_of, FIGURES) if known.stale]
    if not stale:
        return ""
    times = [known.at for known in stale if known.at is not None]
    if times:
        return f"stale since {clock(float(int(min(times))))}"
    return "incomplete" if snapshot.problems else "reading"


def _states(snapshot: Snapshot) -> Iterator[Headline]:
    """Yield the states of a snapshot, the most serious first.

    All is never reported as well while a figure is stale.
    """
    yield from _stopped(snapshot)
    yield from _unread(snapshot)
    yield from _gone(snapshot)
    yield from _late(snapshot)
    yield from _obstacles(snapshot, Level.WARNING, Level.OK)
    if aside := _aside(snapshot):
        text = ", ".join(plural(number, one, many) for _, number, one, many in aside)
        yield Headline.of(Level.WARNING, f"{text}.", aside[0][0])
    if snapshot.flow.waiting:
        yield Headline(Level.OK, f"{_events(snapshot.flow.waiting)} on the way to the topic.")
    yield Headline(Level.OK, _nothing_waits(snapshot.flow))


def _nothing_waits(flow: Flow) -> str:
    others = (flow.committed or 0) - (flow.published or 0)
    if others <= 0:
        return "Every committed event has been accepted by the topic."
    return f"No event waits. {_events(others)} {'was' if others == 1 else 'were'} discarded, or expired."


def _stopped(snapshot: Snapshot) -> Iterator[Headline]:
    flow, known = snapshot.flow, snapshot.known_of("headroom_s")
    if flow.headroom_s is not None and flow.headroom_s < SHORT_HEADROOM_S:
        waiting = flow.waiting or 0
        first = "1 event waits, and" if waiting == 1 else f"The first of {_events(waiting)} that wait"
        then = f" (known at {clock(known.at)})" if known.stale else ""
        yield Headline.of(
            Level.ERROR,
            f"{first} is deleted by its time to live in {span(flow.headroom_s)}{then}.",
            State.TTL_HEADROOM,
        )
    yield from _obstacles(snapshot, Level.ERROR, Level.UNKNOWN)
    if withheld := [each for each in snapshot.partitions if each.withheld is not None]:
        text = "stopped at a document that the host cannot hand over: see the error below."
        yield Headline.of(Level.ERROR, f"{_who(withheld)} {text}", State.UNDELIVERED)
    if retried := [each for each in snapshot.partitions if each.retry is not None]:
        yield Headline.of(Level.ERROR, f"{_who(retried)} being retried: see the error below.", State.FAILING)


def _unread(snapshot: Snapshot) -> Iterator[Headline]:
    known, problems = snapshot.known_of("waiting"), snapshot.problems
    if known.stale and problems:
        since = "" if known.at is None else f" since {clock(float(int(known.at)))}"
        what = visible(next((each.what for each in problems if each.what in _OF_RELAY), problems[0].what))
        yield Headline.of(
            Level.WARNING,
            f"It is not known{since} what waits, as not everything could be read ({what}): see below.",
            State.UNREAD,
        )
    if known.stale:
        committed = snapshot.flow.committed
        so_far = f": {_events(committed)} so far" if committed else ""
        yield Headline(Level.UNKNOWN, f"The outbox is being read{so_far}.")
    if problems:
        yield Headline.of(
            Level.WARNING,
            f"Not everything could be read ({visible(problems[0].what)}): see below.",
            State.UNREAD,
        )


def _late(snapshot: Snapshot) -> Iterator[Headline]:
    flow = snapshot.flow
    if unowned := [each for each in snapshot.partitions if is_unowned(each)]:
        names = ", ".join(short(each.name, 40) for each in unowned[:_NAMED])
        more = f" and {count(len(unowned) - _NAMED)} more" if len(unowned) > _NAMED else ""
        one = "partition" if len(unowned) == 1 else "the partitions"
        yield Headline.of(Level.ERROR, f"Nobody reads {one} {names}{more}.", State.UNOWNED)
    if flow.lag_s is not None and flow.lag_s > USUAL_LAG_S:
        wait = "waits, for" if flow.waiting == 1 else "wait, the oldest for"
        yield Headline.of(Level.WARNING, f"{_events(flow.waiting or 0)} {wait} {span(flow.lag_s)}.", State.LAG)


def _obstacles(snapshot: Snapshot, *levels: Level) -> Iterator[Headline]:
    for obstacle in snapshot.obstacles:
        if obstacle.level in levels:
            yield Headline(obstacle.level, f"{sentence(prose(obstacle.what, 300))}.", section=AT_A_GLANCE)


def _gone(snapshot: Snapshot) -> Iterator[Headline]:
    """Yield that owners are gone whose leases nobody else has taken yet."""
    gone = [each for each in snapshot.partitions if each.held_s is not None and not is_unowned(each)]
    if not gone:
        return
    name, others = short(gone[0].name, 40), len(gone) - 1
    which = f"partition {name} and {count(others)} more" if others else f"partition {name}"
    left_s = max(each.held_s or 0 for each in gone)
    lease = "its lease or claim" if others == 0 else "the last of its leases or claims"
    ends = f"ends within {span(left_s)}" if left_s > 0 else "has ended"
    text = f"The owner of {which} is gone: {lease} {ends}, and then another one takes over."
    yield Headline(Level.WARNING, text, section=RECOVERY)


def is_unowned(partition: Partition) -> bool:
    """Return True if nobody takes a partition with waiting events.

    Between two owners, nobody has it for a moment.
    """
    if partition.behind == 0:
        return False
    if partition.owner is None:
        return partition.oldest_s > _BETWEEN_OWNERS_S
    return partition.held_s is not None and partition.held_s < -_BETWEEN_OWNERS_S


def _who(partitions: list[Partition]) -> str:
    name, others = short(partitions[0].name, 40), len(partitions) - 1
    return f"Partition {name} and {count(others)} more are" if others else f"Partition {name} is"


def _aside(snapshot: Snapshot) -> list[tuple[State, int, str, str]]:
    dead = sum(each.dead_lettered for each in snapshot.subscriptions)
    counted = (
        (State.QUARANTINE, snapshot.flow.quarantined or 0, "record in quarantine", "records in quarantine"),
        (State.PARKED, snapshot.flow.parked or 0, "parked key", "parked keys"),
        (State.DEAD_LETTERS, dead, "dead-lettered message", "dead-lettered messages"),
    )
    return [each for each in counted if each[1]]


def _events(number: int) -> str:
    return plural(number, "event", "events")
