"""Watches an outbox, a topic and a quarantine, and makes a snapshot whenever something has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Self

from relay.console.keys import Keys
from relay.console.model import (
    DeadLetterGroup,
    Delivery,
    Flow,
    Problem,
    QuarantineGroup,
    Snapshot,
    Subscription,
    Timeline,
)
from relay.console.ports import Attempt, Hosts, Outbox, Topic
from relay.console.progress import Progress
from relay.console.quarantined import Quarantined
from relay.console.reading import guarded
from relay.quarantine.items import Items

logger = logging.getLogger(__name__)

# How often the outbox and the positions are looked at: where there was news, and where there was none.
_BUSY_S = 0.25
_IDLE_S = 0.8

# How often everything else is looked at.
_COUNTS_BUSY_S = 2.0
_COUNTS_IDLE_S = 5.0

_PAGE = 1000
# So many pages of events are read at once, before the positions are looked at.
_PAGES = 10
# So many events are held at most that the relay has not passed: no further ones are read until it has.
_HELD = 100_000

# How long looking goes on when nobody watches any more: a page that is loaded again finds it going on.
_LINGER_S = 10.0


class Observer:
    """A View of a relay. It looks while somebody waits in `changed`, or is `watching`, or always if told so.

    Memory: some hundred bytes for each event that the relay has not passed, of which 100 000 are read ahead at
    most; the names of quarantine's records and of events passed lately, as numbers; and the latest 50 events.

    What is counted: `published` are events that a position has passed, and that were not in quarantine when it was
    read after that. What was released or discarded since is among neither.
    """

    def __init__(
        self,
        outbox: Outbox,
        topic: Topic | None,
        items: Items,
        hosts: Hosts | None = None,
        *,
        always: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            outbox, topic, items, hosts: What is read; they are closed with the observer.
            always: Look also while nobody watches, so that rates and latencies are there from the start.
            clock: Seconds since 1970.
        """
        self._outbox = outbox
        self._topic = topic
        self._items = items
        self._hosts = hosts
        self._always = always
        self._clock = clock
        self._keys = Keys(outbox, items, topic)
        self._quarantine = Quarantined(items)
        self._progress = Progress(self._quarantine, clock)
        self._since = clock()
        self._looked_at = self._since
        self._problems: dict[str, Problem] = {}
        self._records = self._parked = 0
        self._groups: Sequence[QuarantineGroup] = ()
        self._subscriptions: Sequence[Subscription] = ()
        self._dead_letters: Mapping[str, Sequence[DeadLetterGroup]] = {}
        self._attempts: Mapping[str, Attempt] = {}
        self._latest = Snapshot(0, self._since, Flow(self._since))
        self._changed = asyncio.Condition()
        self._watchers = 1 if always else 0
        self._watched = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._repeat(self.look_at_flow, _BUSY_S, _IDLE_S), name="console-flow"),
            asyncio.create_task(
                self._repeat(self.look_at_counts, _COUNTS_BUSY_S, _COUNTS_IDLE_S), name="console-counts"
            ),
        ]
        if self._always:
            self._watched.set()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        parts = [part for part in (self._outbox, self._topic, self._items, self._hosts) if part is not None]
        await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)

    @property
    def latest(self) -> Snapshot:
        """The latest snapshot; the first one, number 0, has nothing in it."""
        return self._latest

    async def changed(self, number: int, /) -> Snapshot:
        """Wait until there is a snapshot with a number above this one, and return the latest."""
        with self.watching():
            async with self._changed:
                await self._changed.wait_for(lambda: self._latest.number > number)
                return self._latest

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        """The last events of a key, with their data if `data`."""
        published_at = {
            each.id: each.published_at
            for each in self._latest.recent
            if each.event is not None
            and each.event.partition_key == partition_key
            and each.published_at is not None
        }
        return await self._keys.timeline(partition_key, limit, published_at, data=data)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within, and for ten seconds afterwards, the observer looks."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                asyncio.get_running_loop().call_later(_LINGER_S, self._rest)

    async def look(self) -> Snapshot:
        """Look at everything once."""
        await self.look_at_flow()
        await self.look_at_counts()
        return self._latest

    async def look_at_flow(self) -> bool:
        """Read events, positions and new records of quarantine; returns whether there was anything new."""
        progress, started_at = self._progress, self._clock()
        progress.begin(started_at - self._looked_at)
        committed, published, ended = progress.committed, progress.published, False
        async with self._part("outbox"):
            ended = await self._read_news()
        async with self._part("positions"):
            positions = await self._outbox.positions()
            progress.move(positions)
            if lost := progress.lost():
                for event in lost:
                    partition = await self._outbox.partition_of(event.name[0])
                    if partition is not None and partition != event.partition:
                        progress.backlog.move(event, partition, event.place)
                progress.move(positions)
        if progress.unjudged:
            async with self._part("quarantine"):
                if await self._quarantine.read():
                    progress.judge()
        await self._read_deliveries()
        if ended:
            progress.caught_up(started_at)
        self._looked_at = self._clock()
        await self._publish()
        return not ended or (committed, published) != (progress.committed, progress.published)

    async def look_at_counts(self) -> bool:
        """Read quarantine, subscriptions, dead letters and hosts; returns whether anything has changed."""
        before = self._latest.number
        async with self._part("quarantine by reason"):
            self._records, self._groups = await self._quarantine.groups()
            self._parked = len((await self._items.holds()).parked)
        if self._topic is not None:
            await self._read_topic(self._topic)
        if self._hosts is not None:
            async with self._part("hosts"):
                self._attempts = await self._hosts.attempts()
        await self._publish()
        return self._latest.number != before

    async def _read_news(self) -> bool:
        """Read what was committed; returns whether that was all."""
        for _ in range(_PAGES):
            if self._progress.held >= _HELD:
                return False
            events = await self._outbox.news(_PAGE)
            self._progress.add(events)
            if not events:
                return True
        return False

    async def _read_topic(self, topic: Topic) -> None:
        async with self._part("subscriptions"):
            self._subscriptions = await topic.subscriptions()
        dead_letters = {}
        for subscription in self._subscriptions:
            name = subscription.name
            dead_letters[name] = self._dead_letters.get(name, ())
            async with self._part(f"dead letters of {name}"):
                dead_letters[name] = await topic.dead_letters(name) if subscription.dead_lettered else ()
        self._dead_letters = dead_letters

    async def _read_deliveries(self) -> None:
        if self._topic is None:
            return
        keys: dict[str, list[str]] = {}
        for each in self._progress.recent():
            if each.event is not None:
                keys.setdefault(each.event.partition_key, []).append(each.id)
        found: dict[str, list[Delivery]] = {}
        async with self._part("deliveries"):
            for partition_key, ids in keys.items():
                for delivery in await self._topic.deliveries(partition_key, ids):
                    found.setdefault(delivery.message_id, []).append(delivery)
            self._progress.delivered(found)

    @asynccontextmanager
    async def _part(self, what: str) -> AsyncIterator[None]:
        """What goes wrong within is shown until the same part is read again."""
        async with guarded(what) as outcome:
            yield
        if outcome.problem is None:
            self._problems.pop(what, None)
        else:
            self._problems[what] = outcome.problem

    async def _repeat(self, look: Callable[[], Awaitable[bool]], busy_s: float, idle_s: float) -> None:
        """Look again and again while somebody watches."""
        while True:
            await self._watched.wait()
            news = False
            try:
                news = await look()
            except Exception:
                # What a service answers is a problem on the page; this is a defect, and the page goes on.
                logger.exception("console_look_failed")
            await asyncio.sleep(busy_s if news else idle_s)

    def _rest(self) -> None:
        if not self._watchers:
            self._watched.clear()

    async def _publish(self) -> None:
        """Make a snapshot, if anything is other than in the latest."""
        snapshot = self._snapshot()
        if replace(snapshot, number=self._latest.number, at=self._latest.at) == self._latest:
            return
        async with self._changed:
            self._latest = snapshot
            self._changed.notify_all()

    def _snapshot(self) -> Snapshot:
        now, progress = self._clock(), self._progress
        partitions = progress.partitions(self._attempts)
        p50, p99 = progress.latencies.percentiles(now)
        expires_at = progress.backlog.expires_at()
        flow = Flow(
            self._since,
            committed=progress.committed,
            published=progress.published,
            waiting=progress.held,
            quarantined=self._records,
            parked=self._parked,
            committed_s=progress.commits.at(now),
            published_s=progress.publications.at(now),
            latency_p50_ms=p50,
            latency_p99_ms=p99,
            lag_s=max((partition.oldest_s for partition in partitions), default=0.0),
            headroom_s=None if expires_at is None else float(max(0, int(expires_at - now))),
        )
        return Snapshot(
            self._latest.number + 1,
            now,
            flow,
            tuple(partitions),
            tuple(self._subscriptions),
            tuple(self._groups),
            tuple(group for groups in self._dead_letters.values() for group in groups),
            tuple(progress.recent()),
            (*self._problems.values(), *self._limits()),
        )

    def _limits(self) -> Iterator[Problem]:
        """What the bounds of the memory leave out."""
        if self._progress.held >= _HELD:
            yield Problem("outbox", f"more than {_HELD} events wait: the others are counted when these are passed")
        if not self._quarantine.complete:
            yield Problem(
                "quarantine",
                "there are more records than are remembered: an event that was set aside long ago may be counted "
                "as published",
            )
