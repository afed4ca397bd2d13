"""Values reported when the exporter collects: the remaining time of the oldest events, and their age.

An outage that comes near the time to live is the one way left to lose an event, so it is watched while the outage
lasts: during each attempt, and between a failed attempt and the next one. Nothing is computed until the exporter
asks, which is once a minute by default, and from its own thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from relay.core.events import Event, Rejected
from relay.telemetry.stream import attributes_of

# A failed batch comes again within the retry policy's longest interval, one minute. One that has not come for this
# long has gone to another process, which reports it, or was given up with the lease.
FORGOTTEN_AFTER_S = 300.0

# Seconds since the latest look after which nothing is reported. The timer looks once a minute: a process that has
# not looked for longer no longer runs it, and its values are out of date.
STALE_AFTER_S = 150.0

# Maximum number of leases that are reported, the oldest first: each is a row a minute.
MAX_LEASES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The work of one attempt. Compared by identity: two attempts may have the same documents."""

    events: Sequence[Event]
    rejected: Sequence[Rejected]
    accepted: Callable[[Event], bool]

    def expiry(self) -> float | None:
        """Return the time at which the first event that is not accepted yet will be deleted.

        It is in seconds since 1970; None if never.
        """
        pending = (event.expires_at for event in self.events if not self.accepted(event))
        moments = chain(pending, (item.expires_at for item in self.rejected))
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def identity(self) -> str:
        """The same for every attempt at the same documents."""
        first = self.events[0] if self.events else self.rejected[0]
        return f"{first.partition_key}\n{first.id}"


@dataclass(frozen=True, slots=True)
class _Failed:
    expiry: float
    forgotten_at: float


class Headroom:
    """How much time the events on their way have left, those of failed batches included until these return."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        label: str | None = None,
    ) -> None:
        """Create the gauge; `label` is the stream's."""
        self.label = label
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._in_flight: set[Batch] = set()
        self._failed: dict[str, _Failed] = {}

    def begin(self, batch: Batch) -> None:
        """Watch a batch from now on, instead of an earlier attempt at it."""
        if not batch.events and not batch.rejected:
            return
        with self._lock:
            self._in_flight.add(batch)
            self._failed.pop(batch.identity, None)

    def end(self, batch: Batch, *, delivered: bool) -> None:
        """End the attempt.

        A batch that was not delivered is watched until its next attempt, or for five minutes.
        """
        with self._lock:
            if batch not in self._in_flight:
                return
            self._in_flight.discard(batch)
            expiry = None if delivered else batch.expiry()
            if expiry is not None:
                self._failed[batch.identity] = _Failed(expiry, self._monotonic() + FORGOTTEN_AFTER_S)

    def least(self) -> float | None:
        """Return the seconds until the first event on its way is deleted.

        It is negative once it is; None if there is none.
        """
        now = self._monotonic()
        with self._lock:
            self._failed = {name: each for name, each in self._failed.items() if each.forgotten_at > now}
            expiries = [failed.expiry for failed in self._failed.values()]
            in_flight = list(self._in_flight)
        expiries += [moment for batch in in_flight if (moment := batch.expiry()) is not None]
        return min(expiries) - self._clock() if expiries else None


class ShardAges:
    """Tracks, for each shard of an SQL feed, the age of the oldest event that its reader has yet to publish."""

    def __init__(self, label: str | None = None) -> None:
        """Create the gauge; `label` is the stream's, whose shards have the numbers of those of other streams."""
        self._prefix = "" if attributes_of(label) is None else f"{label}/"
        self._lock = threading.Lock()
        self._watched: dict[Callable[[], float], int] = {}

    @contextmanager
    def watched(self, shard_id: int, age_s: Callable[[], float]) -> Iterator[None]:
        """Report this shard meanwhile; `age_s` returns the age in seconds, 0 if nothing is left."""
        with self._lock:
            self._watched[age_s] = shard_id
        try:
            yield
        finally:
            with self._lock:
                del self._watched[age_s]

    def ages_s(self) -> dict[int | str, float]:
        """Return the ages by shard: its number, behind the name of the stream unless that is `default`."""
        with self._lock:
            watched = list(self._watched.items())
        ages: dict[int | str, float] = {}
        for age_s, shard_id in watched:
            shard = f"{self._prefix}{shard_id}" if self._prefix else shard_id
            # One reader may end while the next one of the same shard has begun.
            ages[shard] = max(age_s(), ages.get(shard, 0.0))
        return ages


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    ages_s: Mapping[str, float]


class LeaseAges:
    """Tracks, for each lease of a Cosmos DB outbox, the age of the oldest change that it has yet to pass."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen: _Seen | None = None
        self._looked_at = 0.0

    def seen(self, ages_s: Mapping[str, float]) -> None:
        """Report these ages, in seconds by lease, until the next look; 0 for one that has passed everything."""
        with self._lock:
            self._looked_at = self._monotonic()
            self._seen = _Seen(self._looked_at, ages_s)

    def missed(self) -> None:
        """Note that a look has failed: nothing newer is known, so the ages reported before grow."""
        with self._lock:
            self._looked_at = self._monotonic()

    def ages_s(self) -> dict[str, float]:
        """Return the ages of the `MAX_LEASES` oldest.

        It is empty where this process does not look, or has never seen any.
        """
        with self._lock:
            seen, looked_at = self._seen, self._looked_at
        if seen is None or self._monotonic() - looked_at > STALE_AFTER_S:
            return {}
        unseen_s = 0.0 if looked_at == seen.at else self._monotonic() - seen.at
        oldest = sorted(seen.ages_s.items(), key=lambda each: each[1], reverse=True)[:MAX_LEASES]
        return {lease: age_s + unseen_s for lease, age_s in oldest}
