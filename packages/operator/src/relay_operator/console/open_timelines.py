"""The partition keys whose timelines are open, and what of them has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from relay.core.events import EventName
from relay_operator.console.model import Delivery, Timeline


@dataclass(slots=True)
class _Key:
    """A key that is followed: by how many, how often it has changed, and what its timeline has."""

    viewers: int = 0
    changes: int = 0
    ids: Sequence[str] = ()
    deliveries: frozenset[Delivery] = frozenset()


class OpenTimelines:
    """Counts the changes of the keys that are followed, so that a timeline is read again for its own alone."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}

    @contextmanager
    def follow(self, partition_key: str) -> Iterator[None]:
        key = self._keys.setdefault(partition_key, _Key())
        key.viewers += 1
        try:
            yield
        finally:
            key.viewers -= 1
            if not key.viewers:
                del self._keys[partition_key]

    def changes(self, partition_key: str) -> int:
        """Return the number of changes that were seen of a key while it was followed."""
        return self._keys[partition_key].changes

    def touch(self, partition_key: str) -> None:
        """Note that something of a key has changed."""
        if (key := self._keys.get(partition_key)) is not None:
            key.changes += 1

    def show(self, timeline: Timeline) -> None:
        """Remember what the timeline of a key shows."""
        key = self._keys.get(timeline.partition_key)
        # Others may ask for fewer of its events.
        if key is not None and len(timeline.events) >= len(key.ids):
            key.ids = [each.id for each in timeline.events]
            key.deliveries = frozenset(delivery for each in timeline.events for delivery in each.deliveries)

    def names(self) -> Iterator[EventName]:
        """Yield the events in the timelines that are open."""
        for partition_key, key in self._keys.items():
            for identifier in key.ids:
                yield partition_key, identifier

    def compare(self, found: Mapping[EventName, Sequence[Delivery]]) -> None:
        """Touch the keys whose messages are not where their timelines show them."""
        for partition_key, key in self._keys.items():
            now = frozenset(each for identifier in key.ids for each in found.get((partition_key, identifier), ()))
            if now != key.deliveries:
                key.deliveries = now
                key.changes += 1
