"""An ordered feed of what transactions committed, for tables in PostgreSQL, Azure SQL and SQL Server."""

from changefeed.claims import AsyncConsumer, Claim, Consumer
from changefeed.connections import connect, connect_async
from changefeed.errors import (
    ArgumentError,
    ChangefeedError,
    ClaimLostError,
    CursorError,
    DatabaseError,
    FeedBusyError,
    IsolationError,
    SetupError,
)
from changefeed.feed import MAX_PAGE_SIZE, AsyncFeed, Feed, Page
from changefeed.install import (
    drop_feed,
    drop_feed_async,
    install,
    install_async,
    setup_feed,
    setup_feed_async,
)
from changefeed.statements import AsyncSession, Entry, Session
from changefeed.ulid import START

__all__ = [
    "MAX_PAGE_SIZE",
    "START",
    "ArgumentError",
    "AsyncConsumer",
    "AsyncFeed",
    "AsyncSession",
    "ChangefeedError",
    "Claim",
    "ClaimLostError",
    "Consumer",
    "CursorError",
    "DatabaseError",
    "Entry",
    "Feed",
    "FeedBusyError",
    "IsolationError",
    "Page",
    "Session",
    "SetupError",
    "connect",
    "connect_async",
    "drop_feed",
    "drop_feed_async",
    "install",
    "install_async",
    "setup_feed",
    "setup_feed_async",
]
