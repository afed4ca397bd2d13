"""The statements of generation 1, for each database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from outbox_relay.changefeed.statements import AsyncSession, Operation, Session, Statement


@dataclass(frozen=True, slots=True)
class Change:
    """One numbered change of generation 1.

    Attributes:
        change_id: The number that the writer drew from the sequence changefeed.change_id; the event table has it.
        change_sequence_number: Its position, without gaps within its feed and shard.
    """

    change_id: int
    change_sequence_number: int


class Statements(Protocol):
    """Operations on numbered changes and their sweepers, in one database's SQL."""

    def sweep(self, sweep_group: int, /) -> Operation[tuple[int, int]]:
        """Make one pass in one transaction.

        It numbers committed changes, a bounded number of each shard, in one snapshot.

        Returns how many, and the age of the oldest in milliseconds. Waits for another pass, 10 s at most.
        """

    def become_sweeper(self, sweep_group: int, wait_ms: int, /) -> Operation[bool]:
        """Take the lock of a sweep group, which ends with the session; False if another one kept it."""

    def resign_sweeper(self, sweep_group: int, /) -> Operation[None]:
        """Give the lock of a sweep group back."""

    def sweep_channel(self, sweep_group: int, /) -> Operation[str | None]:
        """Return the channel on which commits notify the sweepers of a group.

        It is None if those of one of its shards do not.
        """

    def read_changes(self, feed_id: int, shard: int, cursor: int, page_size: int, /) -> Operation[list[Change]]:
        """Return the changes behind the cursor, in order: one round trip. Raises ArgumentError, CursorError."""

    def has_changes(self, feed_id: int, shard: int, cursor: int, /) -> Operation[bool]:
        """Return True if `read_changes` will find something."""

    def change_channel(self, feed_id: int, shard: int, /) -> Operation[str | None]:
        """Return the channel on which the sweeper notifies readers, or None.

        Raises ArgumentError: no such shard.
        """


class _PostgresStatements:
    def sweep(self, sweep_group: int, /) -> Operation[tuple[int, int]]:
        result = yield Statement(
            "select change_count, max_lag_milliseconds from changefeed.sweep(?)", (sweep_group,)
        )
        count, lag_ms = result.rows[0]
        return count, lag_ms

    def become_sweeper(self, sweep_group: int, wait_ms: int, /) -> Operation[bool]:
        result = yield Statement("select changefeed.become_sweeper(?, ?)", (sweep_group, wait_ms))
        return bool(result.rows[0][0])

    def resign_sweeper(self, sweep_group: int, /) -> Operation[None]:
        yield Statement("select changefeed.resign_sweeper(?)", (sweep_group,))

    def sweep_channel(self, sweep_group: int, /) -> Operation[str | None]:
        result = yield Statement("select changefeed.sweep_channel(?)", (sweep_group,))
        channel: str | None = result.rows[0][0]
        return channel

    def read_changes(self, feed_id: int, shard: int, cursor: int, page_size: int, /) -> Operation[list[Change]]:
        result = yield Statement(
            "select change_id, change_sequence_number from changefeed.read_changes(?, ?, ?, ?)",
            (feed_id, shard, cursor, page_size),
        )
        return [Change(*row) for row in result.rows]

    def has_changes(self, feed_id: int, shard: int, cursor: int, /) -> Operation[bool]:
        result = yield Statement("select changefeed.has_changes(?, ?, ?)", (feed_id, shard, cursor))
        return bool(result.rows[0][0])

    def change_channel(self, feed_id: int, shard: int, /) -> Operation[str | None]:
        result = yield Statement("select changefeed.change_channel(?, ?)", (feed_id, shard))
        channel: str | None = result.rows[0][0]
        return channel


class _SqlServerStatements:
    def sweep(self, sweep_group: int, /) -> Operation[tuple[int, int]]:
        result = yield Statement(
            "declare @changes int, @lag bigint; exec changefeed.sweep ?, @changes output, @lag output; "
            "select @changes, @lag",
            (sweep_group,),
        )
        count, lag_ms = result.rows[0]
        return count, lag_ms

    def become_sweeper(self, sweep_group: int, wait_ms: int, /) -> Operation[bool]:
        result = yield Statement(
            "declare @granted int; exec @granted = sp_getapplock @Resource = ?, @LockMode = 'Exclusive', "
            "@LockOwner = 'Session', @LockTimeout = ?; select @granted",
            (_sweeper(sweep_group), wait_ms),
        )
        return bool(result.rows[0][0] >= 0)

    def resign_sweeper(self, sweep_group: int, /) -> Operation[None]:
        yield Statement(
            "if applock_mode('public', ?, 'Session') = 'Exclusive' "
            "exec sp_releaseapplock @Resource = ?, @LockOwner = 'Session'",
            (_sweeper(sweep_group), _sweeper(sweep_group)),
        )

    def sweep_channel(self, sweep_group: int, /) -> Operation[str | None]:
        """Return None: commits notify nobody here."""
        yield from ()
        return None

    def read_changes(self, feed_id: int, shard: int, cursor: int, page_size: int, /) -> Operation[list[Change]]:
        result = yield Statement("exec changefeed.read_changes ?, ?, ?, ?", (feed_id, shard, cursor, page_size))
        return [Change(*row) for row in result.rows]

    def has_changes(self, feed_id: int, shard: int, cursor: int, /) -> Operation[bool]:
        result = yield Statement("exec changefeed.has_changes ?, ?, ?", (feed_id, shard, cursor))
        return bool(result.rows[0][0])

    def change_channel(self, feed_id: int, shard: int, /) -> Operation[str | None]:
        """Return None: the sweeper notifies nobody here. Raises ArgumentError if there is no such shard."""
        yield Statement("exec changefeed.check_shard ?, ?", (feed_id, shard))
        return None


_STATEMENTS: dict[str, Statements] = {"postgresql": _PostgresStatements(), "sqlserver": _SqlServerStatements()}


def statements_for(session: Session | AsyncSession) -> Statements:
    """Return the statements in the SQL of the session's database."""
    return _STATEMENTS[session.dialect.name]


def _sweeper(sweep_group: int) -> str:
    """Return the name of the resource that changefeed.sweep_loop locks too."""
    return f"changefeed.sweep_loop/{sweep_group}"
