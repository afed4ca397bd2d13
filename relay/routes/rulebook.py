"""The rules of one outbox in one process: adds the rules it was deployed with, and tells which count for an event.

`Timelines` is the port of their store, which is next to the positions of the streams: the lease container, or the
database of the feed. Every adapter passes the contract suite in `tests/contracts/test_timelines.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from relay.core.errors import RulesError
from relay.routes.generations import Timeline

AHEAD_S = 60
"""Seconds ahead of the clock for which the rules are made final: changed rules count at most this much later."""

RETURN_S = 600
"""Seconds after which rules are added again that another deployment has replaced, while their processes still run.

Two deployments that run at once take turns, so this bounds the number of generations that they make.
"""

# A process whose change is refused as often as this gives up until its next attempt.
_ATTEMPTS = 10


class TimelineChanged(RulesError):
    """The stored timeline is another one than the change is based on: it has to be read again."""


@dataclass(frozen=True, slots=True)
class StoredTimeline:
    """A timeline as it is stored.

    Attributes:
        timeline: The timeline.
        etag: Its version: every change gives it another one.
    """

    timeline: Timeline
    etag: str


class Timelines(Protocol):
    """The store of the timeline of one outbox. Every method raises RulesError if it cannot be read or written.

    A read may return a state that has been replaced meanwhile; `create` and `replace` decide by the latest one.
    """

    async def read(self) -> StoredTimeline | None:
        """Return the stored timeline; None if there is none."""

    async def create(self, timeline: Timeline, /) -> None:
        """Store the first timeline. Raises TimelineChanged if there is one."""

    async def replace(self, timeline: Timeline, etag: str, /) -> None:
        """Replace the timeline that has this ETag. Raises TimelineChanged if there is none with it."""

    async def close(self) -> None:
        """Close the connection, if there is one."""


class Rulebook:
    """Knows the timeline of an outbox, as far as this process has read it. Create one per process and outbox."""

    def __init__(
        self, store: Timelines, rules: str, clock: Callable[[], float] = time.time, since: float | None = None
    ) -> None:
        """Begin a process with the rules of its deployment; nothing is read yet.

        Args:
            store: Where the timeline is.
            rules: The rules that this process was deployed with, as `rules_text` writes them.
            clock: The time in seconds since 1970. It decides when changed rules count, never whether an event is
                routed by the right ones.
            since: When this process began, by its clock; None for now. Rules that others have added later are
                those of a later deployment.
        """
        self._store = store
        self._rules = rules
        self._clock = clock
        self._since = clock() if since is None else since
        self._known: Timeline | None = None

    async def timeline(self, latest: int) -> Timeline:
        """Return the timeline, final beyond the commit time `latest`.

        Nothing is read where the timeline is known to be final that far, which is nearly always.

        Raises:
            RulesError: The store cannot be read or written, or others change it all the time.
        """
        if self._known is None or latest >= self._known.final_until:
            self._known = await self._look(latest)
        return self._known

    async def _look(self, latest: int) -> Timeline:
        for _ in range(_ATTEMPTS):
            stored = await self._store.read()
            wanted = self._wanted(None if stored is None else stored.timeline, latest)
            try:
                if stored is None:
                    await self._store.create(wanted)
                elif wanted != stored.timeline:
                    await self._store.replace(wanted, stored.etag)
            except TimelineChanged:
                continue
            return wanted
        raise RulesError(
            f"other processes have changed the generations of the rules {_ATTEMPTS} times in the time of one "
            "change. It is tried again."
        )

    def _wanted(self, found: Timeline | None, latest: int) -> Timeline:
        """Return the timeline that is to be stored, so that it is final beyond `latest`."""
        now = int(self._clock())
        base = self._newest(found)
        if self._may_change(base, now):
            base = base.change(self._rules, now)
        return base if latest < base.final_until else base.extend(max(now, latest + 1) + AHEAD_S)

    def _may_change(self, base: Timeline, now: int) -> bool:
        begins_at = base.last.begins_at or 0
        # Rules are added at most so long before they begin.
        if self._known is None and begins_at - AHEAD_S <= self._since:
            return True
        return begins_at + RETURN_S <= now

    def _newest(self, found: Timeline | None) -> Timeline:
        """Return what was found; or what this process knows, if the store was set back to an earlier state."""
        if self._known is None:
            return found or Timeline.of(self._rules)
        if found is None or (self._known.continues(found) and not found.continues(self._known)):
            return self._known
        return found
