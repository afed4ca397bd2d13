"""Observations of consumers beyond their effects: handlers at the same time, gaps, locks lost without cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from outbox_relay import inbox
from verification.journal import entries
from verification.journal.entries import Entry, digest_of
from verification.simulation.receiving.ledgers import Effect, Ledger
from verification.simulation.receiving.subscription import Link, Session
from verification.simulation.world import Process, World


@dataclass(slots=True, eq=False)
class _Handling:
    process: Process
    superseded_at: float | None = None


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that a process may have felt, or every process if it has no name.

    Attributes:
        stops: Whether the process could do nothing meanwhile.
    """

    name: str | None
    began: float
    ended: float
    stops: bool


class Watch:
    """The observer of all consumers of a world. It writes the journal of their effects.

    Attributes:
        wrong: What must not have happened, a line each.
        holder_of: By subscription, tells which link has the lock on a session.
    """

    def __init__(self, world: World, journal: list[Entry], *, lock_s: float, overlap_s: float) -> None:
        """`overlap_s` is for how long a handler may go on after another one has begun with its key."""
        self.world = world
        self.wrong: list[str] = []
        self.holder_of: dict[str, Callable[[str], Link | None]] = {}
        self._journal = journal
        self._lock_s = lock_s
        self._overlap_s = overlap_s
        self._handling: defaultdict[tuple[str, str], list[_Handling]] = defaultdict(list)
        self._disturbances: list[Disturbance] = []
        # In the order of the effects.
        self._had: defaultdict[tuple[str, str, str], dict[int, None]] = defaultdict(dict)

    # Disturbances.

    def disturb(self, name: str | None, for_s: float, *, stops: bool = False) -> None:
        """Note that a fault begins."""
        self._disturbances.append(Disturbance(name, self.world.now, self.world.now + for_s, stops))

    def _is_disturbed(self, name: str, since: float) -> bool:
        """Return True if a process may have felt a fault since then."""
        return any(each.name in (None, name) and each.ended >= since for each in self._disturbances)

    def _stopped_s(self, name: str, since: float) -> float:
        """Return the seconds for which a process could do nothing since then."""
        total, covered = 0.0, since
        for each in sorted(self._disturbances, key=lambda each: each.began):
            if each.stops and each.name == name:
                ended = min(each.ended, self.world.now)
                total += max(0.0, ended - max(each.began, covered))
                covered = max(covered, ended)
        return total

    def expired(self, session: Session, link: Link) -> None:
        """Check that a lock which has expired had a fault as its cause."""
        process = link.receiver.process  # type: ignore[attr-defined]  # every link of this world has one
        since = self.world.now - 2 * self._lock_s
        if process.is_alive and not self._is_disturbed(process.name, since):
            self.wrong.append(f"{process.name} lost {session.key} at {self.world.now:.3f} s, undisturbed")

    # Handlers.

    @contextmanager
    def handling(self, process: Process, consumer: str, key: str) -> Iterator[None]:
        """Note a handler while it runs.

        Once another one has begun with the key, it has to end soon, unless it is the other one whose lock is lost,
        and which has not noticed yet.
        """
        running = self._handling[consumer, key]
        for other in running:
            other.superseded_at = other.superseded_at or self.world.now
        mine = _Handling(process)
        running.append(mine)
        try:
            yield
        finally:
            running.remove(mine)
            if mine.superseded_at is not None and not self._has_lock(process, consumer, key):
                self._check_end(mine, mine.superseded_at, key)

    def _has_lock(self, process: Process, consumer: str, key: str) -> bool:
        link = self.holder_of[consumer](key)
        return link is not None and link.receiver.process is process  # type: ignore[attr-defined]  # as above

    def _check_end(self, ended: _Handling, superseded_at: float, key: str) -> None:
        late_s = self.world.now - superseded_at - self._stopped_s(ended.process.name, superseded_at)
        if late_s > self._overlap_s:
            self.wrong.append(f"{ended.process.name} still handled {key} {late_s:.1f} s after it was handed over")

    # Effects.

    def arrived(self, consumer: str, effect: Effect, arrival: inbox.Arrival) -> None:
        """Check a store's answer about an event: what it calls missing must be missing."""
        had = self._had.get((consumer, effect.entity, effect.key), {})
        if found := had.keys() & set(arrival.missing):
            self.wrong.append(
                f"{consumer} has had {sorted(found)} of {effect.entity}, which were reported missing"
            )

    @property
    def entries(self) -> int:
        """Number of entries that the journal has."""
        return len(self._journal)

    def look(self, consumer: str, ledger: Ledger) -> None:
        """Write down the effects that are there for good and new."""
        for effect in ledger.news():
            if effect.sequence is not None:
                self._had[consumer, effect.entity, effect.key][effect.sequence] = None
            self._journal.append(
                entries.Handled(
                    at=round(self.world.now, 6),
                    consumer=consumer,
                    key=effect.key,
                    id=effect.id,
                    digest=digest_of(effect.body, effect.action),
                    number=effect.enqueued,
                )
            )

    def compare_gaps(self, consumer: str, gaps: list[inbox.Gap]) -> None:
        """Check the store's gaps at the end.

        They are the numbers between the first and the last effect that had none.
        """
        found = {(gap.entity, gap.key): set[int]() for gap in gaps}
        for gap in gaps:
            found[gap.entity, gap.key] |= set(range(gap.first, gap.last + 1))
        for (whose, entity, key), had in self._had.items():
            missing = set(range(next(iter(had)), max(had) + 1)) - had.keys()
            if whose == consumer and missing != found.get((entity, key), set()):
                self.wrong.append(
                    f"{consumer} reports {sorted(found.get((entity, key), ()))} of {entity} as missing, "
                    f"and has not had {sorted(missing)}"
                )
