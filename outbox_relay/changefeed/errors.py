"""Every error of changefeed.

ChangefeedError
├── SetupError          the schema, a table or a setting is not as it has to be; the message has the remedy
├── ArgumentError       an argument is out of its bounds
├── CursorError         the cursor is ahead of the feed: another shard's, or the database was restored
│   └── CursorPrunedError   the cursor is behind what retention has deleted
├── CursorChangedError  somebody else has changed a consumer's cursor; nothing was stored
├── ConsumerRoleError   the consumer belongs to another role of the database
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


class CursorPrunedError(CursorError):
    """Retention has deleted positions behind the cursor, which it would skip.

    Rebuild the consumer from the event table, or read what is left from START.
    """


class CursorChangedError(ChangefeedError):
    """A consumer's cursor is not the one that its reader stored last. Nothing was stored.

    Attributes:
        expected: The position that the reader stored last.
        found: The position that the database has.
    """

    def __init__(self, message: str, *, expected: bytes, found: bytes) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class ConsumerRoleError(ChangefeedError):
    """The consumer belongs to another role of the database, which alone may change its claims."""


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
