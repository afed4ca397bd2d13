"""Reads contacts from their table."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_relay.outbox import InvalidContinuation, NotFound, NotModified, Page, Unavailable
from outbox_relay.outbox.entities import name_of
from outbox_relay.outbox.versions import restore
from samples.contacts.domain import Contact
from samples.contacts.sql import tables
from samples.contacts.sql.change import etag_of
from samples.contacts.sql.failures import LOST, failure


class SqlContacts:
    """The contacts. What is created or read is tracked, and written by the unit of work's `commit()`."""

    def __init__(self, engine: AsyncEngine, tracked: list[Contact]) -> None:
        self._engine = engine
        self._tracked = tracked

    def create(self, contact: Contact, /) -> None:
        """Add a new contact, with its created event, to the commit."""
        self._tracked.append(contact)

    async def read(self, identifier: str, /, *, if_none_match: str | None = None) -> Contact:
        """Read the stored contact.

        Raises:
            NotFound: There is none with this id, or it is deleted.
            NotModified: `if_none_match` is its ETag.
            Unavailable: The database cannot be reached.
        """
        found = await self._rows(
            select(tables.contact).where(tables.contact.c.id == identifier), f"contact '{identifier}'"
        )
        if not found or found[0].deleted:
            raise NotFound(f"There is no contact '{identifier}'.")
        contact = _restored(found[0])
        if if_none_match is not None and if_none_match == contact.etag:
            raise NotModified(f"contact '{identifier}' has not changed.")
        self._tracked.append(contact)
        return contact

    def delete(self, contact: Contact, /) -> None:
        """Add a contact to the commit as deleted, with its deleted event. Raises NotFound if it is deleted."""
        if contact.deleted:
            raise NotFound(f"{name_of(contact)} is deleted.")
        contact.delete()

    async def read_page(self, page_size: int, continuation: str | None, /) -> Page[Contact]:
        """Up to `page_size` contacts, by id, and the continuation: the last one's id.

        Raises:
            InvalidContinuation: It is not one of this list.
            Unavailable: The database cannot be reached.
        """
        wanted = select(tables.contact).where(~tables.contact.c.deleted).order_by(tables.contact.c.id)
        if continuation is not None:
            wanted = wanted.where(tables.contact.c.id > _decoded(continuation))
        found = await self._rows(wanted.limit(page_size + 1), "a page of contacts")
        contacts = tuple(_restored(row) for row in found[:page_size])
        more = len(found) > page_size
        return Page(contacts, _encoded(contacts[-1].id) if more else None)

    async def _rows(self, wanted: Any, what: str) -> list[Row[Any]]:
        try:
            async with self._engine.connect() as connection:
                return list((await connection.execute(wanted)).all())
        except LOST as error:
            raise failure(error, what, Unavailable) from error


def _restored(row: Row[Any]) -> Contact:
    return restore(
        Contact,
        {
            "id": row.id,
            "partitionKey": row.id,
            "data": {**row.data, "deleted": row.deleted},
            "sequence": row.sequence,
            "_etag": etag_of(row.version),
        },
    )


def _encoded(identifier: str) -> str:
    return base64.urlsafe_b64encode(identifier.encode()).decode().rstrip("=")


def _decoded(continuation: str) -> str:
    try:
        padded = continuation + "=" * (-len(continuation) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidContinuation("The continuation was not issued by this list.") from error
    if "\0" in text:
        raise InvalidContinuation("The continuation was not issued by this list.")
    return text
