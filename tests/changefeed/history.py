"""Judges what readers of a feed saw, by what writers did. It shares no code with changefeed, and does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple


class Event(NamedTuple):
    """One event: the version of an aggregate, counted up under the aggregate's row lock.

    `write` makes it unique: after a rollback, another transaction writes the same version.
    """

    shard: int
    aggregate: str
    version: int
    write: int


class Seen(NamedTuple):
    """An event as a reader got it, with its position in the feed."""

    position: bytes
    event: Event


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of a writer.

    Attributes:
        began: A tick of the test's clock, taken before the transaction began.
        ended: A tick taken after its commit had returned; None if it was not committed for certain.
        outcome: How it ended; `unknown` where the connection was lost during the commit.
        events: In order of insertion.
    """

    began: int
    ended: int | None
    outcome: Literal["committed", "rolled back", "unknown"]
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Observation:
    """The events that one reader saw, from the beginning of each shard.

    Attributes:
        reader: Its name.
        seen: By shard, in the order in which it was read.
        complete: Whether it read to the head after the last commit.
    """

    reader: str
    seen: Mapping[int, Sequence[Seen]]
    complete: bool = True


class Fault(NamedTuple):
    """A breach of the contract."""

    kind: Literal[
        "lost", "twice", "rolled back", "torn", "commit order", "aggregate order", "position order", "disagreement"
    ]
    reader: str
    detail: str


def faults(transactions: Iterable[Transaction], observations: Sequence[Observation]) -> list[Fault]:
    """All breaches of the contract; empty if there is none."""
    written = list(transactions)
    of_event = {event: transaction for transaction in written for event in transaction.events}
    found = [fault for observation in observations for fault in _of_reader(observation, written, of_event)]
    return found + _disagreements(observations)


def kinds(found: Iterable[Fault]) -> set[str]:
    """The kinds of these faults."""
    return {fault.kind for fault in found}


def _of_reader(
    observation: Observation, written: Sequence[Transaction], of_event: Mapping[Event, Transaction]
) -> list[Fault]:
    name = observation.reader
    seen = Counter(entry.event for entries in observation.seen.values() for entry in entries)
    found = [Fault("twice", name, f"{event} {count} times") for event, count in seen.items() if count > 1]
    for event in seen:
        transaction = of_event.get(event)
        if transaction is None or transaction.outcome == "rolled back":
            found.append(Fault("rolled back", name, f"{event} was not committed"))
    for transaction in written:
        missing = [event for event in transaction.events if event not in seen]
        if transaction.outcome == "unknown" and 0 < len(missing) < len(transaction.events):
            found.append(Fault("torn", name, f"only a part of a transaction: without {missing}"))
        if transaction.outcome == "committed" and observation.complete:
            found += [Fault("lost", name, str(event)) for event in missing]
    for shard, entries in observation.seen.items():
        events = [entry.event for entry in entries]
        found += [Fault("lost", name, f"{event} is in shard {shard}") for event in events if event.shard != shard]
        found += _out_of_order(name, entries, of_event)
    return found


def _out_of_order(name: str, entries: Sequence[Seen], of_event: Mapping[Event, Transaction]) -> list[Fault]:
    found = [
        Fault("position order", name, f"{later} follows {earlier}")
        for earlier, later in pairwise(entries)
        if later.position <= earlier.position
    ]
    versions: dict[str, int] = {}
    # The latest beginning among the events so far: whatever follows must not have been committed before it.
    last_began = 0
    for _, event in entries:
        if event.version < versions.get(event.aggregate, 0):
            found.append(Fault("aggregate order", name, f"{event} follows {versions[event.aggregate]}"))
        versions[event.aggregate] = event.version
        transaction = of_event.get(event)
        if transaction is None:
            continue
        if transaction.ended is not None and transaction.ended < last_began:
            detail = f"{event}, committed at {transaction.ended}, follows one begun at {last_began}"
            found.append(Fault("commit order", name, detail))
        last_began = max(last_began, transaction.began)
    return found


def _disagreements(observations: Sequence[Observation]) -> list[Fault]:
    found = []
    shards = {shard for observation in observations for shard in observation.seen}
    for shard in sorted(shards):
        by_length = sorted(observations, key=lambda observation: len(observation.seen.get(shard, ())))
        longest = list(by_length[-1].seen[shard])
        for observation in by_length[:-1]:
            own = list(observation.seen.get(shard, ()))
            if own != longest[: len(own)] or (observation.complete and len(own) < len(longest)):
                detail = f"shard {shard}: {len(own)} events, {by_length[-1].reader} has {len(longest)}"
                found.append(Fault("disagreement", observation.reader, detail))
    return found
