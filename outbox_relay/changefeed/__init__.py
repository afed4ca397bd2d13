"""An ordered feed of what transactions committed, for tables in PostgreSQL, Azure SQL and SQL Server."""

from outbox_relay.changefeed.backfill import backfill, backfill_async
from outbox_relay.changefeed.claims import AsyncConsumer, Claim, Consumer, Stored
from outbox_relay.changefeed.connections import connect, connect_async
from outbox_relay.changefeed.errors import (
    ArgumentError,
    ChangefeedError,
    ClaimLostError,
    ConsumerRoleError,
    CursorChangedError,
    CursorError,
    CursorPrunedError,
    DatabaseError,
    FeedBusyError,
    IsolationError,
    SetupError,
)
from outbox_relay.changefeed.feed import MAX_PAGE_SIZE, AsyncFeed, Feed, Page
from outbox_relay.changefeed.install import (
    drop_feed,
    drop_feed_async,
    install,
    install_async,
    repair,
    repair_async,
    set_keep,
    set_keep_async,
    setup_feed,
    setup_feed_async,
)
from outbox_relay.changefeed.numbered.changes import AsyncChanges, ChangePage, Changes
from outbox_relay.changefeed.numbered.statements import Change
from outbox_relay.changefeed.numbered.status import ChangeShardStatus, SweepGroupStatus
from outbox_relay.changefeed.numbered.sweeping import Swept, sweep, sweep_async, sweep_loop, sweep_loop_async
from outbox_relay.changefeed.numbered.writing import append_change, append_change_async
from outbox_relay.changefeed.retention import Pruned, prune, prune_async
from outbox_relay.changefeed.statements import AsyncSession, BackfillPlan, Entry, Session
from outbox_relay.changefeed.status import ConsumerStatus, FeedStatus, ShardStatus, Status, status, status_async
from outbox_relay.changefeed.ulid import START
from outbox_relay.changefeed.writing import append, append_async, shard_of

__all__ = [
    "MAX_PAGE_SIZE",
    "START",
    "ArgumentError",
    "AsyncChanges",
    "AsyncConsumer",
    "AsyncFeed",
    "AsyncSession",
    "BackfillPlan",
    "Change",
    "ChangePage",
    "ChangeShardStatus",
    "ChangefeedError",
    "Changes",
    "Claim",
    "ClaimLostError",
    "Consumer",
    "ConsumerRoleError",
    "ConsumerStatus",
    "CursorChangedError",
    "CursorError",
    "CursorPrunedError",
    "DatabaseError",
    "Entry",
    "Feed",
    "FeedBusyError",
    "FeedStatus",
    "IsolationError",
    "Page",
    "Pruned",
    "Session",
    "SetupError",
    "ShardStatus",
    "Status",
    "Stored",
    "SweepGroupStatus",
    "Swept",
    "append",
    "append_async",
    "append_change",
    "append_change_async",
    "backfill",
    "backfill_async",
    "connect",
    "connect_async",
    "drop_feed",
    "drop_feed_async",
    "install",
    "install_async",
    "prune",
    "prune_async",
    "repair",
    "repair_async",
    "set_keep",
    "set_keep_async",
    "setup_feed",
    "setup_feed_async",
    "shard_of",
    "status",
    "status_async",
    "sweep",
    "sweep_async",
    "sweep_loop",
    "sweep_loop_async",
]
