"""The answers that writers got about their commits, held against what is stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from verification.simulation.writing.documents import Document, Documents


class Told(StrEnum):
    """A writer's knowledge of a commit at the end."""

    COMMITTED = "committed"
    NOTHING = "nothing was written"
    UNKNOWN = "unknown"
    """The library has said so, or the writer was killed before it could."""


@dataclass(slots=True)
class Promise:
    """A commit.

    Attributes:
        events: Number of events in it.
        overwrites: Whether it replaces any version, not only the one that was read.
    """

    stamp: str
    events: int
    overwrites: bool
    told: Told = Told.UNKNOWN


class Promises:
    """All commits of a world.

    Attributes:
        wrong: What must not have happened, a line each.
    """

    def __init__(self, documents: Documents) -> None:
        self.wrong: list[str] = []
        self.told: Counter[Told] = Counter()
        self._documents = documents
        self._made: list[Promise] = []

    def begin(self, stamp: str, events: int, *, overwrites: bool) -> Promise:
        """Begin a commit of a writer."""
        made = Promise(stamp, events, overwrites)
        self._made.append(made)
        return made

    def saw(self, writer: str, key: str, identifier: str, written: str, read: str) -> None:
        """Check that a writer who reads an order after its own commit reads nothing older."""
        stamps = [each["data"]["stamp"] for each in self._orders(key, identifier)]
        if stamps.index(read) < stamps.index(written):
            self.wrong.append(f"{writer} read {identifier} as of {read}, though it had written {written}")

    def violations(self) -> list[str]:
        """Return the violations, once everything is over."""
        written: Counter[str] = Counter()
        events: Counter[str] = Counter()
        found = list(self.wrong)
        for (key, identifier), versions in self._documents.versions.items():
            if versions and versions[0][1]["type"] == "order":
                orders = list(self._orders(key, identifier))
                written.update(each["data"]["stamp"] for each in orders)
                found += _lost_updates(identifier, orders, self._overwriting())
            elif versions:
                events[versions[0][1]["data"].get("stamp", "")] += 1
        for promise in self._made:
            self.told[promise.told] += 1
            found += _broken(promise, written[promise.stamp], events[promise.stamp])
        return [*found, *self._wrong_sequences()]

    def _orders(self, key: str, identifier: str) -> Iterable[Document]:
        return (document for _, document in self._documents.versions[key, identifier])

    def _overwriting(self) -> frozenset[str]:
        return frozenset(promise.stamp for promise in self._made if promise.overwrites)

    def _wrong_sequences(self) -> list[str]:
        """Return the violations of sequences.

        Events of an order have the numbers 1, 2, 3 … as they were committed, and the order has the last one.
        """
        numbers: defaultdict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
        lasts: dict[tuple[str, str], int] = {}
        for (key, identifier), versions in self._documents.versions.items():
            for change, document in versions:
                if document["type"] == "order":
                    lasts[key, identifier] = document["sequence"]
                else:
                    place = change, document["order"], document["sequence"]
                    numbers[key, document["data"]["orderId"]].append(place)
        found = []
        for order, last in lasts.items():
            sequences = [sequence for _, _, sequence in sorted(numbers[order])]
            if sequences != list(range(1, last + 1)):
                found.append(f"the events of {order} are numbered {sequences}, and the order has {last}")
        return found


def _broken(promise: Promise, written: int, events: int) -> list[str]:
    name = f"{promise.stamp}, of which its writer was told: {promise.told}"
    # Without events nothing tells a repeated overwriting from the first one.
    is_repeatable = promise.overwrites and not promise.events
    if promise.told is Told.COMMITTED and not written:
        return [f"not written: {name}"]
    if promise.told is Told.NOTHING and (written or events):
        return [f"written: {name}"]
    if written > 1 and not is_repeatable:
        return [f"written {written} times: {name}"]
    if events != (promise.events if written else 0):
        return [f"written with {events} of {promise.events} events: {name}"]
    return []


def _lost_updates(identifier: str, versions: list[Document], overwriting: frozenset[str]) -> list[str]:
    found = []
    for before, after in pairwise(versions):
        stamp, basis = after["data"]["stamp"], after["data"].get("basis")
        if stamp not in overwriting and basis != before["data"]["stamp"]:
            found.append(f"lost update of {identifier}: {stamp} is based on {basis}, and has replaced another")
    return found
