"""Keeps a process that was frozen, or has lost its lease, from sending old events behind newer ones.

After a lease is lost, the current invocation continues, and a process that was stopped for hours resumes where it
was: its events were published by the lease's next owner long ago. While they are younger than the duplicate
detection window, the topic drops the copies. Older ones are compared with the lease: what its position has passed
was accepted or quarantined by an invocation that succeeded, here or elsewhere, and is not sent again.

A source that knows until when this process owns what it has read says so (`Received.owned`): nothing is sent after
that, however young it is.

This costs nothing while events are young; an attempt with an old one compares its whole batch. So does an attempt
that may not be the first at its page, an event of which may have been set aside. A clearance ends after half the
window, so that a process frozen after it was given cannot use it (docs/decisions/0006-fence.md).
The other half is left for a transfer that waits, and for clocks that differ.

An event that is to be set aside is compared regardless of its age, right before it is stored: quarantine has no
duplicate detection, and an event that an operator has released or discarded must not come back. That comparison
counts for a minute.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from relay.core.deadline import within
from relay.core.errors import LostOwnershipError, SourceError, StaleClearanceError
from relay.core.events import Event, Received, Rejected, always_owned

Settled = Callable[[Sequence[Event | Rejected]], Awaitable[frozenset[int]]]
"""The positions of documents that the checkpoint has passed, as `ports.Source.passed_positions`."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """The events that may be sent, and until when.

    Attributes:
        given: Seconds since 1970 when the leases were compared, or the attempt began.
        lasts_s: Seconds after that, or after its commit if that is later, for which an event may be sent.
        passed: The positions of the documents that the checkpoint has passed.
        owned: Whether this process still owns the lease or shard that it has read.
    """

    given: float
    lasts_s: float
    passed: frozenset[int] = frozenset()
    owned: Callable[[], bool] = always_owned

    def check(self, event: Event) -> None:
        """Check the conditions of a send.

        Raises:
            StaleClearanceError: The time is over: the next attempt compares again.
            LostOwnershipError: Another process may publish these events by now.
        """
        self.check_ownership()
        # The wall clock: a machine that was suspended has no other that went on.
        late_s = time.time() - max(self.given, _committed(event)) - self.lasts_s
        if late_s > 0:
            raise StaleClearanceError(
                f"not sent: it is more than half of RELAY_DUPLICATE_WINDOW_S ({self.lasts_s:g} s) since this "
                "event was compared with the lease, as the attempt took long or the process was stopped "
                "meanwhile. The next attempt compares again."
            )

    def check_storing(self) -> None:
        """Check the conditions of storing something that is set aside.

        Raises:
            StaleClearanceError: The time is over: the next attempt compares again.
            LostOwnershipError: Another process may own these events by now.
        """
        self.check_ownership()
        if time.time() - self.given > self.lasts_s:
            raise StaleClearanceError(
                f"not quarantined: it is more than {self.lasts_s:g} s since these documents were compared with "
                "the checkpoint, as the process was stopped meanwhile. The next attempt compares again."
            )

    def check_ownership(self) -> None:
        """Raise LostOwnershipError if another process may publish these events by now."""
        if not self.owned():
            raise LostOwnershipError(
                "not sent: the claim on the shard was not renewed in time, so another process may be publishing "
                "these events by now"
            )


# Maximum seconds of a comparison: two reads that are bounded by themselves, and up to a second for 100 000 keys.
_COMPARING_S = 25.0

# Seconds after a comparison began in which what is set aside may be stored: more than comparing and storing take.
_STORABLE_S = 60.0

ALWAYS = Clearance(0.0, math.inf)
"""Everything may be sent, at any time."""


class Fence:
    """Gives each attempt its clearance."""

    def __init__(self, window_s: float, settled: Settled) -> None:
        """Create a fence.

        `window_s` is the topic's duplicate detection window; `settled` asks the source's checkpoint.
        """
        self._lasts_s = window_s / 2
        self._settled = settled

    async def clear(self, received: Received, *, compare: bool = False) -> Clearance:
        """Compare a batch with the checkpoint if one of its events is old, or if the caller requests it.

        Raises:
            SourceError: The checkpoint cannot be read.
        """
        now = time.time()
        oldest = min(map(_committed, received.events), default=now)
        if not compare and oldest >= now - self._lasts_s:
            # A young event's time counts from its commit.
            return Clearance(0.0, self._lasts_s, owned=received.owned)
        # All of it: a young event may be sent until half the window after this, however soon its own ends.
        passed = await self._compare((*received.events, *received.rejected))
        return Clearance(now, self._lasts_s, passed, received.owned)

    async def _compare(self, items: Sequence[Event | Rejected]) -> frozenset[int]:
        async with within(_COMPARING_S, SourceError, "comparing with the checkpoint"):
            return await self._settled(items)

    async def clear_storing(self, set_aside: Sequence[Rejected], owned: Callable[[], bool]) -> Clearance:
        """Compare documents that are about to be set aside with the checkpoint.

        Raises:
            SourceError: The checkpoint cannot be read.
        """
        now = time.time()
        return Clearance(now, _STORABLE_S, await self._compare(set_aside), owned)


def _committed(event: Event) -> float:
    """Return the seconds since 1970, 0 if the source does not say: then the event counts as old."""
    return event.committed_at or 0.0
