"""Follows the relay: reads events as they are committed, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from relay.console.model import Delivery, Problem
from relay.console.parts import Parts
from relay.console.ports import Topic
from relay.console.progress import Progress
from relay.console.quarantined import Quarantined
from relay.events import EventName
from relay.outbox import Outbox

_PAGE = 1000
# Maximum number of pages of events read before the positions are read again.
_PAGES = 10
# Maximum number of unpublished events in memory; reading pauses at this limit.
_HELD = 100_000


class Follower:
    """Keeps `progress` up to date.

    Attributes:
        progress: What was read.
    """

    def __init__(
        self,
        outbox: Outbox,
        topic: Topic | None,
        quarantine: Quarantined,
        parts: Parts,
        clock: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._topic = topic
        self._quarantine = quarantine
        self._parts = parts
        self._clock = clock
        self.progress = Progress(quarantine, clock)
        self._looked_at = clock()

    async def look(self) -> bool:
        """Read events, positions and new records of quarantine, in this order; returns whether there was any news.

        A record is stored before the position passes its event. So what a position has passed is counted when the
        records that were added since have been read, and not before.
        """
        progress, started_at = self.progress, self._clock()
        progress.begin(started_at - self._looked_at)
        before, ended = (progress.committed, progress.published), False
        async with self._parts.reading("outbox"):
            ended = await self._read_news()
        async with self._parts.reading("positions"):
            await self._read_positions()
        if progress.unjudged:
            async with self._parts.reading("quarantine"):
                if await self._quarantine.read():
                    progress.judge(await self._accepted_at(progress.sample()))
        progress.delivered(await self._deliveries(progress.names()))
        if ended:
            progress.caught_up(started_at)
        self._looked_at = self._clock()
        return not ended or before != (progress.committed, progress.published)

    def limits(self) -> Iterator[Problem]:
        """What the bounds of the memory leave out."""
        if self.progress.held >= _HELD:
            yield Problem("outbox", f"more than {_HELD} events wait: the others are counted when these are passed")
        if not self._quarantine.complete:
            yield Problem(
                "quarantine",
                "there are more records than are remembered: an event that was set aside long ago may be counted "
                "as published",
            )

    async def _read_news(self) -> bool:
        """Read what was committed; returns whether that was all."""
        for _ in range(_PAGES):
            if self.progress.held >= _HELD:
                return False
            events = await self._outbox.news(_PAGE)
            self.progress.add(events)
            if not events:
                return True
        return False

    async def _read_positions(self) -> None:
        positions = await self._outbox.positions()
        self.progress.move(positions)
        lost = self.progress.lost()
        for event in lost:
            partition = await self._outbox.partition_of(event.name[0])
            if partition is not None and partition != event.partition:
                self.progress.backlog.move(event, partition, event.place)
        if lost:
            self.progress.move(positions)

    async def _accepted_at(self, names: Sequence[EventName]) -> Mapping[EventName, float]:
        """When the topic accepted events, as far as it says so."""
        return {
            name: min(accepted)
            for name, deliveries in (await self._deliveries(names)).items()
            if (accepted := [each.accepted_at for each in deliveries if each.accepted_at is not None])
        }

    async def _deliveries(self, names: Sequence[EventName]) -> Mapping[EventName, Sequence[Delivery]]:
        keys: dict[str, list[str]] = {}
        for partition_key, identifier in names:
            keys.setdefault(partition_key, []).append(identifier)
        found: dict[EventName, list[Delivery]] = {}
        if self._topic is not None:
            async with self._parts.reading("deliveries"):
                for partition_key, ids in keys.items():
                    for delivery in await self._topic.deliveries(partition_key, ids):
                        found.setdefault((partition_key, delivery.message_id), []).append(delivery)
        return found
