"""Every error of changefeed.

ChangefeedError
├── SetupError          the schema, a table or a setting is not as it has to be; the message has the remedy
├── ArgumentError       an argument is out of its bounds
├── CursorError         the cursor is ahead of the feed: another shard's, or the database was restored
├── IsolationError      the session reads in a way in which rows could be missed
├── FeedBusyError       another reader held the shard's lock for too long; try again
├── ClaimLostError      the claim on a shard is another reader's now
└── DatabaseError       the database cannot be reached, or refuses the statement
"""

from __future__ import annotations


class ChangefeedError(Exception):
    """The base of every error that changefeed raises by itself."""


class SetupError(ChangefeedError):
    """The schema, a table or a setting is not as it has to be."""


class ArgumentError(ChangefeedError, ValueError):
    """An argument is out of its bounds."""


class CursorError(ChangefeedError):
    """The cursor is ahead of the last position given: it is of another shard, or the database was restored."""


class IsolationError(ChangefeedError):
    """The session's isolation level, or its open transaction, could make a read miss rows."""


class FeedBusyError(ChangefeedError):
    """Another reader held the shard's lock for longer than the lock timeout. Nothing was read: try again."""


class ClaimLostError(ChangefeedError):
    """Another reader has claimed the shard, so the cursor was not stored."""


class DatabaseError(ChangefeedError):
    """The database cannot be reached, or refuses a statement.

    Attributes:
        lost: Whether the connection is of no use any more.
    """

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost
