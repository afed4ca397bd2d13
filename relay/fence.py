"""Keeps a process that was frozen, or has lost its lease, from sending old events behind newer ones.

After a lease is lost, the invocation under way goes on, and a process that was stopped for hours resumes where it
was: its events were published by the lease's next owner long ago. While they are younger than the duplicate
detection window, the topic drops the copies. Older ones are compared with the lease: what its position has passed
was accepted or quarantined by an invocation that succeeded, here or elsewhere, and is not sent again.

A source that knows until when this process owns what it has read says so (`Received.owned`): nothing is sent after
that, however young it is.

This costs nothing while events are young; an attempt with old ones reads the leases once. A clearance ends after
half the window, so that a process frozen after it was given cannot use it (docs/decisions/0006-fence.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from relay.errors import LostOwnershipError, StaleClearanceError
from relay.events import Event, EventName, Received, Rejected, always_owned

Settled = Callable[[Sequence[Event | Rejected]], Awaitable[frozenset[int]]]
"""The positions of the items that the checkpoint has passed, as `ports.Source.settled`."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """What may be sent, and until when.

    Attributes:
        given: Seconds since 1970 when the leases were compared, or the attempt began.
        lasts_s: How long after that, or after its commit where that is later, an event may be sent.
        superseded: The events that the lease has passed.
        owned: Whether this process still owns what it has read.
    """

    given: float
    lasts_s: float
    superseded: frozenset[EventName] = frozenset()
    owned: Callable[[], bool] = always_owned

    def check(self, event: Event) -> None:
        """What has to hold for a send.

        Raises:
            StaleClearanceError: The time is over: the next attempt compares again.
            LostOwnershipError: Another process may publish these events by now.
        """
        if not self.owned():
            raise LostOwnershipError(
                "not sent: the claim on the shard was not renewed in time, so another process may be publishing "
                "these events by now"
            )
        # The wall clock: a machine that was suspended has no other that went on.
        late_s = time.time() - max(self.given, _committed(event)) - self.lasts_s
        if late_s > 0:
            raise StaleClearanceError(
                f"not sent: it is more than half of RELAY_DUPLICATE_WINDOW_S ({self.lasts_s:g} s) since this "
                "event was compared with the lease, as the attempt took long or the process was stopped "
                "meanwhile. The next attempt compares again."
            )


ALWAYS = Clearance(0.0, math.inf)
"""Everything may be sent, at any time."""


class Fence:
    """Gives each attempt its clearance."""

    def __init__(self, window_s: float, settled: Settled) -> None:
        """`window_s` is the topic's duplicate detection window; `settled` asks the source's checkpoint."""
        self._lasts_s = window_s / 2
        self._settled = settled

    async def clear(self, received: Received) -> Clearance:
        """Compare the old ones among the events with the checkpoint. Raises SourceError."""
        now = time.time()
        still_young = now - self._lasts_s
        old = [event for event in received.events if _committed(event) < still_young]
        if not old:
            # A young event's time counts from its commit.
            return Clearance(0.0, self._lasts_s, owned=received.owned)
        passed = await self._settled(old)
        superseded = frozenset(event.name for event in old if event.position in passed)
        return Clearance(now, self._lasts_s, superseded, received.owned)


def _committed(event: Event) -> float:
    """Seconds since 1970, 0 where the source does not say: then the event counts as old."""
    return event.committed_at or 0.0
