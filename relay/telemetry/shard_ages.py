"""How old the oldest event is that the reader of each shard of an SQL feed still has to publish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ShardAges:
    """The shards that this process reads. Nothing is computed until the exporter asks, from its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[Callable[[], float], int] = {}

    @contextmanager
    def watched(self, shard_id: int, age_s: Callable[[], float]) -> Iterator[None]:
        """Report this shard meanwhile; `age_s` returns the age in seconds, 0 where nothing is left."""
        with self._lock:
            self._watched[age_s] = shard_id
        try:
            yield
        finally:
            with self._lock:
                del self._watched[age_s]

    def ages_s(self) -> dict[int, float]:
        """The age of each shard that this process reads."""
        with self._lock:
            watched = list(self._watched.items())
        ages: dict[int, float] = {}
        for age_s, shard_id in watched:
            # One reader may end while the next one of the same shard has begun.
            ages[shard_id] = max(age_s(), ages.get(shard_id, 0.0))
        return ages
