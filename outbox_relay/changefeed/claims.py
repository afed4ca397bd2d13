"""Named consumers of a feed: the position of each, and which process reads a shard for it.

A claim is a row of `claim:schema.Table`. Whoever takes it raises its epoch, and every later change of the row
requires that epoch: a process that was stopped and has lost its claim cannot store a cursor. The owner renews it
by counting `renewals` up. A claim is dead when epoch and renewals have not changed for a while on the clock of the
process that watches: no clock of the database is asked, so none that steps can end a claim or keep a dead one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox_relay.changefeed.errors import ClaimLostError, CursorChangedError, DatabaseError
from outbox_relay.changefeed.statements import AsyncSession, Dialect, Operation, Session, Statement, run, run_async
from outbox_relay.changefeed.tables import Tables
from outbox_relay.changefeed.ulid import to_text


@dataclass(frozen=True, slots=True)
class Claim:
    """The state of one shard of a consumer.

    Attributes:
        shard_id: The shard.
        cursor: The position that was stored last.
        owner: The process that reads the shard; None if there is none.
        epoch: Number of times the owner has changed.
        renewals: Number of times the row was renewed.
        wanted_by: The process that asks for the shard; None if there is none.
    """

    shard_id: int
    cursor: bytes
    owner: str | None
    epoch: int
    renewals: int
    wanted_by: str | None

    @property
    def version(self) -> tuple[int, int]:
        """The values that change whenever the owner shows that it is alive."""
        return self.epoch, self.renewals


class Stored:
    """The cursors that a process has stored, or may have stored if the answer was lost."""

    def __init__(self) -> None:
        self._cursors: dict[tuple[int, int], list[bytes]] = {}

    def expected(self, claim: Claim) -> list[bytes]:
        """Return the cursors that the claim's row may have."""
        return self._cursors.get((claim.shard_id, claim.epoch), [claim.cursor])

    def attempted(self, claim: Claim, cursor: bytes) -> None:
        """Add a cursor that may be stored."""
        self._cursors[claim.shard_id, claim.epoch] = [*self.expected(claim), cursor]

    def refused(self, claim: Claim, expected: list[bytes]) -> None:
        """Return to what was expected before an attempt that has stored nothing."""
        self._cursors[claim.shard_id, claim.epoch] = expected

    def confirmed(self, claim: Claim, cursor: bytes) -> None:
        """Keep the cursor that was stored; forget earlier epochs of the shard."""
        for shard_id, epoch in [key for key in self._cursors if key[0] == claim.shard_id]:
            del self._cursors[shard_id, epoch]
        self._cursors[claim.shard_id, claim.epoch] = [cursor]


class Consumer:
    """The claims of one consumer, through a sync session."""

    def __init__(self, session: Session, table: str, name: str, stored: Stored | None = None) -> None:
        """Create the consumer of a feed.

        Args:
            session: The session that it uses.
            table: `schema.Table`, as it was given to setup_feed.
            name: Its name, of your choice. It belongs to the database role that makes its first claim.
            stored: The cursors that the process has stored. Pass the same object when a session is replaced.
        """
        self._session = session
        self._claims = Claims(session.dialect, table, name, stored)

    def claims(self, shards: Sequence[int]) -> list[Claim]:
        """Return the claims of these shards, in order. Creates those that do not exist yet, without an owner."""
        return run(self._session, self._claims.all(shards))

    def existing(self) -> dict[int, Claim]:
        """Return the existing claims by shard. Creates none."""
        return run(self._session, self._claims.existing())

    def take(self, claim: Claim, owner: str) -> Claim:
        """Become the owner, if the claim is still as it was read. Raises ClaimLostError."""
        return run(self._session, self._claims.take(claim, owner))

    def renew(self, claim: Claim) -> None:
        """Show that the owner is alive. Raises ClaimLostError."""
        run(self._session, self._claims.renew(claim))

    def store(self, claim: Claim, cursor: bytes) -> None:
        """Store the consumer's position, and renew the claim.

        Raises:
            ClaimLostError: Another process has the claim. Nothing was stored.
            CursorChangedError: The cursor in the database is not the one that this reader stored last. Nothing
                was stored.
            ConsumerRoleError, DatabaseError
        """
        run(self._session, self._claims.store(claim, cursor))

    def release(self, claim: Claim, to: str | None = None) -> None:
        """Give the shard to another process, or to whoever comes. Raises ClaimLostError."""
        run(self._session, self._claims.release(claim, to))

    def ask(self, claim: Claim, asker: str) -> None:
        """Ask the owner for the shard. Raises ClaimLostError if it is not the owner any more."""
        run(self._session, self._claims.ask(claim, asker))

    def decline(self, claim: Claim) -> None:
        """Take back another process's request for the shard. Raises ClaimLostError."""
        run(self._session, self._claims.decline(claim))


class AsyncConsumer:
    """The claims of one consumer, through an async session; see `Consumer`."""

    def __init__(self, session: AsyncSession, table: str, name: str, stored: Stored | None = None) -> None:
        self._session = session
        self._claims = Claims(session.dialect, table, name, stored)

    async def claims(self, shards: Sequence[int]) -> list[Claim]:
        """Return the claims of these shards, in order. Creates those that do not exist yet, without an owner."""
        return await run_async(self._session, self._claims.all(shards))

    async def existing(self) -> dict[int, Claim]:
        """Return the existing claims by shard. Creates none."""
        return await run_async(self._session, self._claims.existing())

    async def take(self, claim: Claim, owner: str) -> Claim:
        """Become the owner, if the claim is still as it was read. Raises ClaimLostError."""
        return await run_async(self._session, self._claims.take(claim, owner))

    async def renew(self, claim: Claim) -> None:
        """Show that the owner is alive. Raises ClaimLostError."""
        await run_async(self._session, self._claims.renew(claim))

    async def store(self, claim: Claim, cursor: bytes) -> None:
        """Store the consumer's position, and renew the claim.

        See `Consumer.store` for the arguments and errors.
        """
        await run_async(self._session, self._claims.store(claim, cursor))

    async def release(self, claim: Claim, to: str | None = None) -> None:
        """Give the shard to another process, or to whoever comes. Raises ClaimLostError."""
        await run_async(self._session, self._claims.release(claim, to))

    async def ask(self, claim: Claim, asker: str) -> None:
        """Ask the owner for the shard. Raises ClaimLostError if it is not the owner any more."""
        await run_async(self._session, self._claims.ask(claim, asker))

    async def decline(self, claim: Claim) -> None:
        """Take back another process's request for the shard. Raises ClaimLostError."""
        await run_async(self._session, self._claims.decline(claim))


class Claims:
    """The operations on the claims of one consumer, each of one statement that every database here understands."""

    def __init__(self, dialect: Dialect, table: str, consumer: str, stored: Stored | None) -> None:
        self._dialect = dialect
        self._stored = stored or Stored()
        self._table = Tables(dialect, table).claim
        self._consumer = consumer

    def all(self, shards: Sequence[int]) -> Operation[list[Claim]]:
        """Return the claims of these shards, in order. Creates those that do not exist yet, without an owner."""
        found = yield from self.existing()
        missing = [shard_id for shard_id in shards if shard_id not in found]
        refusal: DatabaseError | None = None
        for shard_id in missing:
            try:
                yield Statement(
                    f"insert into {self._table} (consumer, shard_id) values (?, ?)", (self._consumer, shard_id)
                )
            except DatabaseError as error:
                # Another process has made it at the same time; that it is there is checked below.
                if error.lost:
                    raise
                refusal = error
        if missing:
            found = yield from self.existing()
            if refusal is not None and not found.keys() >= set(missing):
                raise refusal
        return [found[shard_id] for shard_id in shards]

    def existing(self) -> Operation[dict[int, Claim]]:
        """Return the existing claims by shard. Creates none."""
        result = yield Statement(
            f"select shard_id, last_ulid, owner, epoch, renewals, wanted_by from {self._table} where consumer = ?",
            (self._consumer,),
        )
        return {row[0]: Claim(row[0], bytes(row[1]), *row[2:]) for row in result.rows}

    def take(self, claim: Claim, owner: str) -> Operation[Claim]:
        """Become the owner, if the claim is still as it was read. Raises ClaimLostError."""
        yield from self._change(
            "owner = ?, epoch = epoch + 1, renewals = renewals + 1, wanted_by = null",
            (owner,),
            claim,
            as_read=True,
        )
        # If a row was not renewed since it was read, it still has the cursor that was read.
        return Claim(claim.shard_id, claim.cursor, owner, claim.epoch + 1, claim.renewals + 1, None)

    def renew(self, claim: Claim) -> Operation[None]:
        """Show that the owner is alive. Raises ClaimLostError."""
        yield from self._change("renewals = renewals + 1", (), claim)

    def store(self, claim: Claim, cursor: bytes) -> Operation[None]:
        """Store the consumer's position, and renew the claim.

        See `Consumer.store` for the arguments and errors.
        """
        expected = self._stored.expected(claim)
        # If the answer is lost, the next call finds either cursor.
        self._stored.attempted(claim, cursor)
        marks = ", ".join("?" for _ in expected)
        result = yield Statement(
            f"update {self._table} set last_ulid = ?, stored_at = current_timestamp, renewals = renewals + 1 "
            f"where consumer = ? and shard_id = ? and epoch = ? and last_ulid in ({marks})",
            (
                self._dialect.ulid(cursor),
                self._consumer,
                claim.shard_id,
                claim.epoch,
                *(self._dialect.ulid(one) for one in expected),
            ),
            prepared=True,
        )
        if not result.changed:
            self._stored.refused(claim, expected)
            yield from self._refuse(claim, expected[-1])
        self._stored.confirmed(claim, cursor)

    def _refuse(self, claim: Claim, expected: bytes) -> Operation[None]:
        result = yield Statement(
            f"select last_ulid from {self._table} where consumer = ? and shard_id = ? and epoch = ?",
            (self._consumer, claim.shard_id, claim.epoch),
        )
        if not result.rows:
            raise self._lost(claim)
        found = bytes(result.rows[0][0])
        raise CursorChangedError(
            f"the cursor of shard {claim.shard_id} of the consumer {self._consumer!r} is {to_text(found)} in the "
            f"database, and this reader stored {to_text(expected)} last. Somebody else has changed it, so events "
            "may be skipped or published twice. Find out who, set last_ulid in the claim's row to the position "
            "from which to continue, and restart the reader.",
            expected=expected,
            found=found,
        )

    def release(self, claim: Claim, to: str | None) -> Operation[None]:
        """Give the shard to another process, or to whoever comes. Raises ClaimLostError."""
        yield from self._change(
            "owner = ?, epoch = epoch + 1, renewals = renewals + 1, wanted_by = null", (to,), claim
        )

    def ask(self, claim: Claim, asker: str) -> Operation[None]:
        """Ask the owner for the shard. Raises ClaimLostError if it is not the owner any more."""
        yield from self._change("wanted_by = ?", (asker,), claim)

    def decline(self, claim: Claim) -> Operation[None]:
        """Take back another process's request for the shard. Raises ClaimLostError."""
        yield from self._change("wanted_by = null", (), claim)

    def _change(
        self, assignments: str, values: Sequence[object], claim: Claim, *, as_read: bool = False
    ) -> Operation[None]:
        conditions, expected = "epoch = ?", [claim.epoch]
        if as_read:
            conditions, expected = "epoch = ? and renewals = ?", [claim.epoch, claim.renewals]
        result = yield Statement(
            f"update {self._table} set {assignments} where consumer = ? and shard_id = ? and {conditions}",
            (*values, self._consumer, claim.shard_id, *expected),
        )
        if not result.changed:
            raise self._lost(claim)

    def _lost(self, claim: Claim) -> ClaimLostError:
        return ClaimLostError(
            f"the shard {claim.shard_id} of the consumer {self._consumer!r} has another owner by now"
        )
