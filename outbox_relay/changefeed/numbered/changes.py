"""Readers of generation 1: the numbered changes behind a cursor."""

from __future__ import annotations

import time
from dataclasses import dataclass

from outbox_relay.changefeed.numbered.statements import Change, statements_for
from outbox_relay.changefeed.statements import AsyncSession, Operation, Session, run, run_async

# Seconds between polls of a waiting reader, without notifications of commits and with them.
_POLL_EVERY_S = 0.15
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class ChangePage:
    """The result of one read.

    Attributes:
        changes: The changes behind the cursor, in order. Fewer than asked for does not mean that there are no
            more; none does.
        cursor: Where to read on: the last change_sequence_number, or the cursor of an empty page.
    """

    changes: list[Change]
    cursor: int


class Changes:
    """The numbered changes of all feeds, read through a sync session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pauses_s: dict[tuple[int, int], float] = {}

    def read(self, feed_id: int, shard: int, cursor: int = 0, page_size: int = 100) -> ChangePage:
        """Return the changes behind the cursor, in order.

        Args:
            feed_id: As in changefeed.feed.
            shard: As in changefeed.shard.
            cursor: The change_sequence_number that was read last; 0 to begin with.
            page_size: 1 to 1000.

        Raises:
            CursorError: The cursor is ahead of the last number given.
            ArgumentError: There is no such shard, or page_size is out of its bounds.
            DatabaseError
        """
        reading = statements_for(self._session).read_changes(feed_id, shard, cursor, page_size)
        return run(self._session, _page(reading, cursor))

    def wait(self, feed_id: int, shard: int, cursor: int, timeout_s: float) -> bool:
        """Wait for numbered changes behind the cursor; returns False if there are none when the time is over."""
        ends = time.monotonic() + timeout_s
        if (feed_id, shard) not in self._pauses_s:
            channel = run(self._session, statements_for(self._session).change_channel(feed_id, shard))
            if channel is not None:
                self._session.listen(channel)
            self._pauses_s[feed_id, shard] = _POLL_EVERY_S if channel is None else _LOOK_EVERY_S
        while not run(self._session, statements_for(self._session).has_changes(feed_id, shard, cursor)):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            self._session.notified(min(left_s, self._pauses_s[feed_id, shard]))
        return True


class AsyncChanges:
    """The numbered changes of all feeds, read through an async session; see `Changes`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._pauses_s: dict[tuple[int, int], float] = {}

    async def read(self, feed_id: int, shard: int, cursor: int = 0, page_size: int = 100) -> ChangePage:
        """Return the changes behind the cursor, in order. See `Changes.read` for the arguments and errors."""
        reading = statements_for(self._session).read_changes(feed_id, shard, cursor, page_size)
        return await run_async(self._session, _page(reading, cursor))

    async def wait(self, feed_id: int, shard: int, cursor: int, timeout_s: float) -> bool:
        """Wait for numbered changes behind the cursor, as `Changes.wait`."""
        ends = time.monotonic() + timeout_s
        if (feed_id, shard) not in self._pauses_s:
            channel = await run_async(self._session, statements_for(self._session).change_channel(feed_id, shard))
            if channel is not None:
                await self._session.listen(channel)
            self._pauses_s[feed_id, shard] = _POLL_EVERY_S if channel is None else _LOOK_EVERY_S
        while not await run_async(
            self._session, statements_for(self._session).has_changes(feed_id, shard, cursor)
        ):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            await self._session.notified(min(left_s, self._pauses_s[feed_id, shard]))
        return True


def _page(reading: Operation[list[Change]], cursor: int) -> Operation[ChangePage]:
    changes = yield from reading
    return ChangePage(changes, changes[-1].change_sequence_number if changes else cursor)
