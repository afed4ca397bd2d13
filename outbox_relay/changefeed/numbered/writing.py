"""For writers of generation 1: puts changes on a feed, in the transaction that the service has open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outbox_relay.changefeed.targets import Insert, execute, execute_async


def append_change(target: Any, feed_id: int, shard: int, change_ids: int | Iterable[int]) -> None:
    """Put changes on a feed of generation 1, by one INSERT into changefeed.change.

    Args:
        target: As for `writing.append`.
        feed_id: As in changefeed.feed.
        shard: As in changefeed.shard.
        change_ids: The events' numbers from the sequence changefeed.change_id, one or several.

    Raises:
        ArgumentError: As `writing.append`.
    """
    insert = _changes(feed_id, shard, change_ids)
    if insert.rows:
        execute(target, insert)


async def append_change_async(target: Any, feed_id: int, shard: int, change_ids: int | Iterable[int]) -> None:
    """Put changes on a feed of generation 1, by one INSERT into changefeed.change.

    Takes the targets of `append_async`. See `append_change` for the arguments and errors.
    """
    insert = _changes(feed_id, shard, change_ids)
    if insert.rows:
        await execute_async(target, insert)


def _changes(feed_id: int, shard: int, change_ids: int | Iterable[int]) -> Insert:
    several = [change_ids] if isinstance(change_ids, int) else change_ids
    return Insert("change", ("feed_id", "shard", "change_id"), [(feed_id, shard, one) for one in several])
