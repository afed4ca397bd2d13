"""The peek-locks on the messages of one queue: by token, and by when they expire."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Container, Iterator
from operator import itemgetter

from outbox_relay.emulators.servicebus.entry import Entry, Lock

_SPARE = 1000


class Deadlines:
    """Sequence numbers by a moment each, in milliseconds since the epoch."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_ms: int, sequence_number: int) -> None:
        heapq.heappush(self._heap, (when_ms, sequence_number))

    def prune(self, messages: Container[int], count: int) -> None:
        """Drop the deadlines of messages that are gone, once they outnumber those of the `count` that are there.

        Without this, the deadlines of messages that were settled would be kept until they are due.
        """
        if len(self._heap) > 2 * count + _SPARE:
            self._heap = [each for each in self._heap if each[1] in messages]
            heapq.heapify(self._heap)

    def due(self, now_ms: int) -> Iterator[int]:
        """Remove and yield the sequence numbers whose moment has come, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            yield heapq.heappop(self._heap)[1]

    @property
    def next_due(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()


class LockTable:
    """Which messages are locked. Moments are milliseconds since the epoch."""

    def __init__(self) -> None:
        self._locked: dict[bytes, Entry] = {}
        self._expiries: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._locked)

    def get(self, token: bytes) -> Entry | None:
        """Return the message of a lock token."""
        return self._locked.get(token)

    def entries(self) -> list[Entry]:
        return list(self._locked.values())

    def acquire(self, entry: Entry, until_ms: int) -> Lock:
        """Lock a message. The lock expires only if `expire_later` is called."""
        entry.lock = lock = Lock.new(until_ms)
        self._locked[lock.token] = entry
        return lock

    def release(self, entry: Entry) -> None:
        """Unlock a message, if it is locked."""
        if entry.lock is not None:
            del self._locked[entry.lock.token]
            entry.lock = None

    def expire_later(self, lock: Lock) -> None:
        """Let a lock expire at the end of its time, unless it is renewed until then."""
        expiry = (lock.until_ms, lock.token)
        if self._expiries and lock.until_ms < self._expiries[-1][0]:
            # Only after the lock duration was made shorter: otherwise what is locked later expires later.
            insort(self._expiries, expiry, key=itemgetter(0))
        else:
            self._expiries.append(expiry)

    def expired(self, now_ms: int) -> Iterator[Entry]:
        """Yield each message whose lock has expired; it is for the caller to release it."""
        while self._expiries and self._expiries[0][0] <= now_ms:
            until_ms, token = self._expiries.popleft()
            entry = self._locked.get(token)
            if entry is not None and entry.lock is not None and entry.lock.until_ms <= until_ms:
                yield entry

    @property
    def next_expiry(self) -> int | None:
        return self._expiries[0][0] if self._expiries else None

    def clear(self) -> None:
        self._locked.clear()
        self._expiries.clear()
