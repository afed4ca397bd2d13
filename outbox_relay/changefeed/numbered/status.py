"""The sweep groups of generation 1, and what waits in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox_relay.changefeed.statements import Dialect, Operation, Statement
from outbox_relay.changefeed.tables import seconds_between


@dataclass(frozen=True, slots=True)
class ChangeShardStatus:
    """A shard of generation 1.

    Attributes:
        feed_id: Its feed.
        shard: Its number.
        last_change_sequence_number: The last number given, or what was set before the first.
        waiting: Number of committed changes that have no number yet.
        lag_s: Age of the oldest of them in seconds; None if there are none.
    """

    feed_id: int
    shard: int
    last_change_sequence_number: int
    waiting: int
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class SweepGroupStatus:
    """A sweep group.

    Attributes:
        sweep_group: Its number.
        shards: Its shards by feed and number.
    """

    sweep_group: int
    shards: Sequence[ChangeShardStatus]


def sweep_groups(dialect: Dialect) -> Operation[list[SweepGroupStatus]]:
    """Return all sweep groups by number."""
    result = yield Statement(
        "select s.sweep_group, s.feed_id, s.shard, s.last_change_sequence_number, "
        "(select count(*) from changefeed.change c "
        "where c.feed_id = s.feed_id and c.shard = s.shard and c.change_sequence_number is null), "
        f"(select min({dialect.datable('c.inserted_at')}) from changefeed.change c "
        "where c.feed_id = s.feed_id and c.shard = s.shard and c.change_sequence_number is null), "
        f"{dialect.now} from changefeed.shard s order by s.sweep_group, s.feed_id, s.shard"
    )
    groups: dict[int, list[ChangeShardStatus]] = {}
    for sweep_group, feed_id, shard, last, waiting, oldest, now in result.rows:
        lag_s = seconds_between(oldest, now) if waiting else None
        groups.setdefault(sweep_group, []).append(ChangeShardStatus(feed_id, shard, last, waiting, lag_s))
    return [SweepGroupStatus(sweep_group, shards) for sweep_group, shards in groups.items()]
