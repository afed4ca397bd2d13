"""Watches an outbox, a topic and a quarantine, and makes a snapshot whenever something has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Self

from relay.assembly import open_outbox, open_store
from relay.console.counts import Counts
from relay.console.model import Flow, Snapshot, Timeline
from relay.console.ports import Parts, Sources
from relay.console.progress import Progress
from relay.console.servicebus import ServiceBusTopic
from relay.console.timeline import read_timeline
from relay.settings import Settings

logger = logging.getLogger(__name__)

# Seconds between looks at the outbox and the positions: after news, and without any.
_BUSY_S = 0.25
_IDLE_S = 0.8

# Seconds between looks at everything else: after a change, and without one.
_COUNTS_BUSY_S = 2.0
_COUNTS_IDLE_S = 5.0

# Seconds for which observing continues without a viewer: a page that is reloaded finds it running.
_LINGER_S = 10.0


class Observer:
    """A View of a relay. It looks while somebody waits in `changed`, and for ten seconds afterwards, or always.

    Memory: some hundred bytes for each event that the relay has not passed, of which 100 000 are read ahead at
    most; the names of quarantine's records and of events passed lately, as numbers; and the latest 50 events.

    What is counted: `published` are events that a position has passed, and that were not in quarantine when it was
    read after that. An event that was in quarantine is not counted as published when it is released.
    """

    def __init__(self, sources: Sources, *, always: bool = False, clock: Callable[[], float] = time.time) -> None:
        """`always` has rates and latencies there from the start. The sources are closed with the observer."""
        self._sources = sources
        self._clock = clock
        self._parts = Parts()
        self._progress = Progress(sources, self._parts, clock)
        self._counts = Counts(sources, self._parts)
        self._since = clock()
        self._latest = Snapshot(0, self._since, Flow(self._since))
        self._changed = asyncio.Condition()
        self._watched = asyncio.Event()
        self._watchers = 0
        if always:
            self._watch()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._repeat(self.look_at_flow, _BUSY_S, _IDLE_S)),
            asyncio.create_task(self._repeat(self.look_at_counts, _COUNTS_BUSY_S, _COUNTS_IDLE_S)),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sources.close()

    @property
    def latest(self) -> Snapshot:
        """The latest snapshot; the first one, number 0, has nothing in it."""
        return self._latest

    async def changed(self, number: int, /) -> Snapshot:
        """See ports.View."""
        self._watch()
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._latest.number > number)
                return self._latest
        finally:
            self._watchers -= 1
            asyncio.get_running_loop().call_later(_LINGER_S, self._rest)

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        """See ports.View."""
        published_at = {
            each.id: each.published_at
            for (key, _), each in self._progress.latest.items()
            if key == partition_key and each.published_at is not None
        }
        return await read_timeline(self._sources, partition_key, limit, published_at, data=data)

    async def look(self) -> Snapshot:
        await self.look_at_flow()
        await self.look_at_counts()
        return self._latest

    async def look_at_flow(self) -> bool:
        """Read events, positions and new records of quarantine; returns whether there was any news."""
        news = await self._progress.look()
        await self._publish()
        return news

    async def look_at_counts(self) -> bool:
        """Read quarantine, subscriptions, dead letters and hosts; returns whether anything has changed."""
        await self._counts.read()
        return await self._publish()

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

    async def _publish(self) -> bool:
        """Make a snapshot, if anything is other than in the latest; returns whether it is."""
        snapshot = self._snapshot()
        if replace(snapshot, number=self._latest.number, at=self._latest.at) == self._latest:
            return False
        async with self._changed:
            self._latest = replace(snapshot, number=self._latest.number + 1)
            self._changed.notify_all()
        return True

    def _snapshot(self) -> Snapshot:
        now, progress, counts = self._clock(), self._progress, self._counts
        partitions = progress.partitions(counts.attempts)
        p50, p99 = progress.latencies.percentiles(now)
        expires_at = progress.backlog.expires_at()
        flow = Flow(
            self._since,
            committed=progress.committed,
            published=progress.published,
            waiting=progress.held,
            quarantined=counts.records,
            parked=counts.parked,
            committed_s=progress.commits.per_second(now),
            published_s=progress.publications.per_second(now),
            latency_p50_ms=p50,
            latency_p99_ms=p99,
            lag_s=max((partition.oldest_s for partition in partitions), default=0.0),
            headroom_s=None if expires_at is None else float(max(0, int(expires_at - now))),
        )
        return Snapshot(
            0,
            now,
            flow,
            tuple(partitions),
            tuple(counts.subscriptions),
            tuple(counts.groups),
            tuple(counts.dead_letters),
            tuple(reversed(progress.latest.values())),
            (*self._parts.problems, *self._progress.limits()),
        )


def observer_of(settings: Settings, environment: Mapping[str, str], *, from_beginning: bool) -> Observer:
    """An observer of the settings' outbox and topic. Nothing is connected until somebody looks.

    Args:
        settings: With one outbox; of both, leave one out: `replace(settings, sql=None)`.
        environment: May have `SERVICEBUS_ADMIN`, if the management endpoint has its own address.
        from_beginning: Whether to read every event that the outbox has, or those that the relay has not passed.

    Raises:
        UsageError: The settings have both outboxes.
    """
    outbox = open_outbox(settings, from_beginning=from_beginning)
    return Observer(Sources(outbox, ServiceBusTopic(settings, environment), open_store(settings)))
