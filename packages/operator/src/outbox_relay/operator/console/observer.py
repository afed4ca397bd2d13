"""Watches an outbox, a topic and a quarantine, and makes a snapshot whenever something has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Self

from outbox_relay.operator.backends.backend import OperatorBackend
from outbox_relay.operator.console.backlog import MOST
from outbox_relay.operator.console.counts import Counts
from outbox_relay.operator.console.freshness import Freshness, Part
from outbox_relay.operator.console.history import History, Ring
from outbox_relay.operator.console.model import Flow, Known, Partition, Snapshot, Timeline
from outbox_relay.operator.console.ports import Attempt, Parts, Sources
from outbox_relay.operator.console.progress import Progress
from outbox_relay.operator.console.servicebus import ServiceBusTopic
from outbox_relay.operator.console.timeline import OpenTimelines, Seen, read_timeline
from outbox_relay.operator.console.truncation import ERROR, both_ends

logger = logging.getLogger(__name__)

# Seconds between looks at the outbox and the positions: after news, and without any.
_BUSY_S = 0.25
_IDLE_S = 0.8

# Seconds between looks at everything else: after a change, and without one.
_COUNTS_BUSY_S = 2.0
_COUNTS_IDLE_S = 5.0

# Seconds between looks at what has become stale.
_CLOCK_S = 1.0

# Seconds for which observing continues without a viewer: a page that is reloaded finds it running.
_LINGER_S = 10.0

# Seconds within which a snapshot is not replaced for its times alone.
_SAME_S = 0.2

_CURRENT = Known(stale=False)


class Observer:
    """A View of a relay. It looks while somebody waits in `changed`, and for ten seconds afterwards, or always.

    Memory: some hundred bytes for each event that the relay has not passed, of which 100 000 are read ahead at
    most, and for each of the last 10 000 that expired; the names of quarantine's records and of events passed
    lately, as numbers; and the latest 500 events; and the last hour's figures in slots of ten seconds.

    What is counted: `published` are events that a position has passed, and that were not in quarantine when it was
    read after that. An event that was in quarantine is counted as published when it is released.
    """

    def __init__(self, sources: Sources, *, always: bool = False, clock: Callable[[], float] = time.time) -> None:
        """Create an observer.

        `always` has rates and latencies there from the start. It closes the sources when it is closed.
        """
        self._sources = sources
        self._clock = clock
        self._parts = Parts()
        self._freshness = Freshness(clock)
        self._followed = OpenTimelines()
        self._progress = Progress(sources, self._parts, self._freshness, self._followed, clock)
        self._counts = Counts(sources, self._parts, self._freshness, clock)
        self._ring = Ring()
        self._since = clock()
        self._latest = Snapshot(0, self._since, Flow(self._since), known=self._freshness.figures())
        # Set, and replaced, with each new snapshot, and whenever a reading has ended.
        self._news, self._ended = asyncio.Event(), asyncio.Event()
        self._turn = asyncio.Lock()
        self._watched = asyncio.Event()
        self._watchers = 0
        if always:
            self._watch()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._repeat(self.look_at_flow, _BUSY_S, _IDLE_S)),
            *(
                asyncio.create_task(self._repeat(partial(self._look_at, each), _COUNTS_BUSY_S, _COUNTS_IDLE_S))
                for each in self._counts.readings
            ),
            # A look that is awaited for long makes no snapshot, and what it does not read grows stale.
            asyncio.create_task(self._repeat(self._look_at_clock, _CLOCK_S, _CLOCK_S)),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sources.close()

    @property
    def latest(self) -> Snapshot:
        """See ports.View. The first one, number 0, has nothing in it."""
        self._publish()
        return self._latest

    async def changed(self, number: int, /) -> Snapshot:
        """See ports.View."""
        with self._watching():
            while self._latest.number <= number:
                await self._news.wait()
            return self._latest

    async def current(self, timeout_s: float, /) -> Snapshot:
        """See ports.View."""
        with self._watching(), suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._freshness.is_answered():
                    await self._ended.wait()
        return self.latest

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        """See ports.View."""
        published_at = {
            each.id: each.published_at
            for (key, _), each in self._progress.latest
            if key == partition_key and each.published_at is not None
        }
        seen = Seen(published_at, self._progress.expired(partition_key))
        found = await read_timeline(self._sources, partition_key, limit, seen, data=data)
        self._followed.show(found)
        return found

    @contextmanager
    def follow(self, partition_key: str, /) -> Iterator[Callable[[], Hashable]]:
        """See ports.View. An event of another key changes nothing here."""
        with self._followed.follow(partition_key):
            yield lambda: (self._followed.changes(partition_key), self._counts.state_of(partition_key))

    async def look(self) -> Snapshot:
        await self.look_at_flow()
        await self.look_at_counts()
        return self._latest

    async def look_at_flow(self) -> bool:
        """Read events, positions and new records of quarantine; returns whether there was any news."""
        # Looks that overlap would show what one has read and the other has not.
        async with self._turn:
            news = await self._progress.look()
        self._end()
        return news

    async def look_at_counts(self) -> bool:
        """Read quarantine, subscriptions, dead letters and hosts; returns whether anything has changed."""
        for reading in self._counts.readings:
            await reading()
        return self._end()

    async def _look_at(self, reading: Callable[[], Awaitable[None]]) -> bool:
        await reading()
        return self._end()

    def _end(self) -> bool:
        """Note that a reading has ended, and return True if anything is new."""
        news = self._publish()
        self._ended.set()
        self._ended = asyncio.Event()
        return news

    async def _look_at_clock(self) -> bool:
        return self._publish()

    async def _repeat(self, look: Callable[[], Awaitable[bool]], busy_s: float, idle_s: float) -> None:
        while True:
            await self._watched.wait()
            news = False
            try:
                news = await look()
            except Exception:
                # A service's error is a problem on the page; this is a defect, and the page continues.
                logger.exception("console_look_failed")
            await asyncio.sleep(busy_s if news else idle_s)

    def _watch(self) -> None:
        self._watchers += 1
        self._watched.set()

    def _rest(self) -> None:
        if not self._watchers:
            self._watched.clear()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._watch()
        try:
            yield
        finally:
            self._watchers -= 1
            asyncio.get_running_loop().call_later(_LINGER_S, self._rest)

    def _publish(self) -> bool:
        """Make a snapshot; returns whether anything in it is new but its times."""
        snapshot = self._snapshot()
        if _without_times(snapshot) == _without_times(self._latest):
            # Who asks at about the same time gets the same one, which is encoded once.
            if snapshot.at - self._latest.at >= _SAME_S:
                self._latest = replace(snapshot, number=self._latest.number)
            return False
        self._latest = replace(snapshot, number=self._latest.number + 1)
        self._news.set()
        self._news = asyncio.Event()
        return True

    def _snapshot(self) -> Snapshot:
        now, figures, counts = self._clock(), self._progress.figures, self._counts
        committed, committed_s = self._progress.committed or (None, None)
        flow = Flow(
            self._since,
            committed=committed,
            published=figures.published,
            waiting=figures.waiting,
            quarantined=counts.records,
            parked=counts.parked,
            committed_s=committed_s,
            published_s=figures.published_s,
            latency_p50_ms=figures.latency_p50_ms,
            latency_p99_ms=figures.latency_p99_ms,
            lag_s=figures.lag_s,
            headroom_s=figures.headroom_s,
        )
        return Snapshot(
            0,
            now,
            flow,
            self._partitions(),
            tuple(counts.subscriptions),
            tuple(counts.groups),
            tuple(counts.dead_letters),
            self._progress.recent[:MOST],
            self._progress.recent[MOST:],
            (*self._parts.problems, *self._progress.limits()),
            tuple(counts.obstacles),
            known=self._freshness.figures(),
            history=self._history(flow, now),
            removals=counts.removals.latest,
            parked_keys=counts.parked_keys,
        )

    def _history(self, flow: Flow, now: float) -> History:
        """Note the present figures, each at the time when it was read, and return the last hour."""
        relay, topic = self._freshness.known(Part.RELAY).at, self._freshness.known(Part.SUBSCRIPTIONS).at
        self._ring.note_rate(relay, flow.published_s)
        self._ring.note("lag_s", relay, flow.lag_s)
        self._ring.note("quarantined", self._freshness.known(Part.QUARANTINE).at, flow.quarantined)
        self._ring.note("dead_lettered", topic, sum(each.dead_lettered for each in self._counts.subscriptions))
        return self._ring.history(now)

    def _partitions(self) -> Sequence[Partition]:
        """Return the partitions with the hosts' attempts, as far as these are known."""
        attempts = {} if self._freshness.known(Part.HOSTS).stale else self._counts.attempts
        partitions = self._progress.figures.partitions
        return tuple(_attempted(self._with_owner(each), attempts.get(each.name)) for each in partitions)

    def _with_owner(self, partition: Partition) -> Partition:
        """Return a partition with what is known of its owner's end."""
        hosts, owner = self._sources.hosts, partition.owner
        ended_at = None if hosts is None or owner is None else hosts.ended_at(owner)
        held_s = self._progress.owners.held_s(partition.name, self._clock(), ended_at)
        return partition if held_s is None else replace(partition, held_s=held_s)


def _attempted(partition: Partition, attempt: Attempt | None) -> Partition:
    """Return a partition with the information that a host gives about it."""
    if attempt is None or (attempt.number <= 1 and attempt.withheld is None):
        return partition
    retry = attempt.number if attempt.number > 1 else None
    return replace(partition, retry=retry, error=_shown(attempt.error), withheld=_shown(attempt.withheld))


def _shown(error: str | None) -> str | None:
    return None if error is None else both_ends(error, ERROR)


def _without_times(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without its number and the times that every look changes; what is stale keeps its time."""
    known = {name: each if each.stale else _CURRENT for name, each in snapshot.known.items()}
    return replace(snapshot, number=0, at=0.0, known=known)


def observer_of(backend: OperatorBackend, environment: Mapping[str, str], *, from_beginning: bool) -> Observer:
    """Return an observer of an outbox and the stream's topic. It connects when somebody looks.

    Args:
        backend: The backend of the outbox.
        environment: May have `SERVICEBUS_ADMIN`, if the management endpoint has its own address.
        from_beginning: Whether to read every event that the outbox has, or those that the relay has not passed.
    """
    outbox = backend.open_outbox(from_beginning=from_beginning)
    return Observer(Sources(outbox, ServiceBusTopic(backend.settings, environment), backend.open_store()))
