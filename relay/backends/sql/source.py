"""An SQL feed as the pipeline's source: pages of one shard, and the stored cursors as its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox_relay.changefeed.claims import Claim
from outbox_relay.changefeed.feed import Page
from outbox_relay.changefeed.statements import Entry
from outbox_relay.changefeed.ulid import from_text
from relay.backends.sql.rows import position_time, select, select_each
from relay.core.events import Event, Received, Rejected
from relay.routes.selection import Selection

if TYPE_CHECKING:
    from relay.routes.history import StreamRules

# An owner stops before another process may take over: its claim lasts longer for those who watch.
_SHARE = 0.8

# The monotonic clock of some systems stops while the machine is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC) if hasattr(time, "clock_gettime") else None


def now() -> tuple[float, float]:
    """Return the time on two clocks.

    One never steps; the other is the wall's, which continues while a machine is paused.
    """
    steady = time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
    return steady, time.time()


class Ownership:
    """The claim on one shard, whose owner can tell without a query if it still holds."""

    def __init__(self, claim_s: float, since: tuple[float, float]) -> None:
        """Create the claim's state; `since` is `now()` before the claim was asked for."""
        self._lasts_s = claim_s * _SHARE
        self._renewed = since
        self._ended = False

    def renewed(self, since: tuple[float, float]) -> None:
        """Note that the claim was renewed by a request that began at `since`."""
        self._renewed = max(self._renewed, since)

    def end(self) -> None:
        """Note that another process has the shard."""
        self._ended = True

    def holds(self) -> bool:
        """Return True if no other process can have taken over yet."""
        if self._ended:
            return False
        steady, wall = now()
        # A wall clock that is set forward ends it early, which is harmless; one set back changes nothing.
        return max(steady - self._renewed[0], wall - self._renewed[1]) < self._lasts_s


@dataclass(frozen=True, slots=True)
class SqlBatch:
    """One page of a shard, and the claim under which it was read.

    Attributes:
        taken_over: Whether the former owner of the shard may have attempted its first event.
        epoch: That of the claim; None if it is not known.
        after: The position behind which the page was read.
    """

    shard_id: int
    page: Page
    ownership: Ownership
    taken_over: bool = False
    epoch: int | None = None
    after: bytes = b""


class SqlSource:
    """Reads pages; `ports.Source` says what each method does."""

    def __init__(self, selection: Selection, claim: Callable[[int], Awaitable[Claim]]) -> None:
        """Create a source.

        `selection` says which rows are events of the stream, `claim` reads a shard's claim.
        """
        self._selection = selection
        self._claim = claim
        # Of each shard, the epoch of the claim under which a page was read last, and behind which position.
        self._own: dict[int, tuple[int | None, bytes]] = {}

    async def read(self, batch: SqlBatch, /) -> Received:
        self._own[batch.shard_id] = batch.epoch, batch.after
        received = await self._select(batch.page.entries, batch.shard_id)
        received.owned = batch.ownership.holds
        received.may_be_tried = batch.taken_over or _is_ahead(batch.page)
        return received

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        places = [(each.position, *_place_of(each)) for each in items]
        passed = {shard_id: await self._passed(shard_id) for shard_id in {shard_id for _, shard_id, _ in places}}
        return frozenset(position for position, shard_id, ulid in places if ulid <= passed[shard_id])

    async def _passed(self, shard_id: int) -> bytes:
        """Return the position up to which a shard is published.

        While this process owns the shard, no other one stores its cursor: one that is ahead was moved by hand.
        """
        claim = await self._claim(shard_id)
        epoch, after = self._own.get(shard_id, (None, b""))
        return min(claim.cursor, after) if claim.epoch == epoch else claim.cursor

    async def _select(self, entries: Sequence[Entry], shard_id: int) -> Received:
        return select(entries, shard_id, self._selection)


class SqlSourceInTime(SqlSource):
    """Reads pages where the rules have generations: each row by those of the time in its position."""

    def __init__(self, selection: Selection, claim: Callable[[int], Awaitable[Claim]], rules: StreamRules) -> None:
        """`rules` say which rows are events of the stream; `selection` says it by the rules of today."""
        super().__init__(selection, claim)
        self._rules = rules

    async def _select(self, entries: Sequence[Entry], shard_id: int) -> Received:
        if not entries:
            return Received()
        # Positions grow within a shard.
        selections = await self._rules.within(position_time(entries[0].ulid), position_time(entries[-1].ulid))
        if selections.only is not None:
            return select(entries, shard_id, selections.only)
        return select_each(entries, shard_id, lambda entry: selections.at(position_time(entry.ulid)))


def _is_ahead(page: Page) -> bool:
    """Return True if the time in a position is in the future, as a writer has stated: it tells no event's age."""
    return bool(page.entries) and position_time(page.entries[0].ulid) > time.time()


def _place_of(item: Event | Rejected) -> tuple[int, bytes]:
    place = item.document.place
    assert place.shard is not None
    assert place.ulid is not None
    return place.shard, from_text(place.ulid)
