"""The unit of work: contacts and their events, committed in one transaction of the database."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sqlalchemy import exists, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from outbox_relay.changefeed import shard_of
from outbox_relay.outbox import CommitUncertain, Conflict, PreconditionFailed
from outbox_relay.outbox.entities import name_of
from outbox_relay.outbox.versions import mark_saved
from samples.contacts.domain import Contact
from samples.contacts.sql import tables
from samples.contacts.sql.change import Change, etag_of
from samples.contacts.sql.failures import LOST, failure
from samples.contacts.sql.repository import SqlContacts


class SqlUnitOfWork:
    """Objects created, changed and deleted within the block are written by `commit()`, or not at all.

    Nothing is locked between a read and the commit: the commit requires the version that was read. Its update
    locks the contact's row until the transaction ends. So the events of a contact are committed in their order,
    and take their places in the outbox in that order.
    """

    def __init__(self, engine: AsyncEngine, *, shards: int) -> None:
        """`shards` is how many shards the feed of events has."""
        self._engine = engine
        self._shards = shards
        self._tracked: list[Contact] = []
        self._in_doubt: list[Change] = []

    def repository(self, kind: type[Contact], /) -> SqlContacts:
        """Return the repository of contacts."""
        return SqlContacts(self._engine, self._tracked)

    async def commit(self) -> None:
        """Write every contact that has raised events, its events, and their rows in the outbox.

        Raises:
            Conflict, PreconditionFailed, InvalidDocument: Nothing was written.
            CommitUncertain: The connection was lost; call `commit()` again, which is applied once.
        """
        changes = self._in_doubt or [Change.of(contact) for contact in self._tracked if contact.domain_events]
        if not changes:
            return
        try:
            async with self._engine.begin() as connection:
                for change in changes:
                    await self._write(connection, change)
        except (Conflict, PreconditionFailed):
            if not (self._in_doubt and await self._is_committed(changes)):
                raise
        except LOST as error:
            self._in_doubt = changes
            raise failure(error, f"the commit of {name_of(changes[0].contact)}", CommitUncertain) from error
        self._in_doubt = []
        for change in changes:
            mark_saved(change.contact, etag_of(change.version), change.event_ids, change.sequence)

    async def _write(self, connection: AsyncConnection, change: Change) -> None:
        # First the contact: its lock decides in which order the events of concurrent commits follow.
        if change.replaces is None:
            try:
                await connection.execute(insert(tables.contact).values(change.row))
            except IntegrityError as error:
                raise Conflict(f"The id of {name_of(change.contact)} is already in use.") from error
        else:
            same = (tables.contact.c.id == change.contact.id) & (tables.contact.c.version == change.replaces)
            updated = await connection.execute(update(tables.contact).where(same).values(change.row))
            if not updated.rowcount:
                raise PreconditionFailed(f"{name_of(change.contact)} was changed since it was read.")
        shard_id = shard_of(change.contact.id, self._shards)
        await connection.execute(insert(tables.domain_event), change.events)
        # A statement for each row, in one round trip: their order is the order of the events.
        places = [{"shard_id": shard_id, "id": identifier} for identifier in change.event_ids]
        await connection.execute(insert(tables.outbox), places)

    async def _is_committed(self, changes: list[Change]) -> bool:
        """Return True if an attempt whose answer was lost was committed. The ids of events are random."""
        stored = select(exists().where(tables.domain_event.c.id == changes[0].event_ids[0]))
        try:
            async with self._engine.connect() as connection:
                return bool(await connection.scalar(stored))
        except LOST as error:
            raise failure(error, f"the commit of {name_of(changes[0].contact)}", CommitUncertain) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tracked.clear()
