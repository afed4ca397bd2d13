"""What can be done with contacts: each use case is one unit of work on the outbox's container."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from azure.cosmos.aio import ContainerProxy

from outbox import CommitUncertain, Page, PreconditionFailed, UnitOfWork
from samples.contacts.domain import Contact

_REPETITIONS = 2
_PAUSE_S = 0.2

Accepts = Callable[[str], bool]
"""Whether a version, by its ETag, is one that the caller means."""


class Contacts:
    """The use cases; safe with any number of tasks at once. Errors are those of `outbox`."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def create(self, contact: Contact) -> Contact:
        """Store a new contact, with its created event. Conflict where its id is taken."""
        async with UnitOfWork(self._container) as work:
            work.repository(Contact).create(contact)
            await _commit(work)
        return contact

    async def read(self, identifier: str, *, if_none_match: str | None = None) -> Contact:
        """The contact. NotModified where `if_none_match` is its ETag."""
        async with UnitOfWork(self._container) as work:
            return await work.repository(Contact).read(identifier, if_none_match=if_none_match)

    async def read_page(self, size: int, continuation: str | None) -> Page[Contact]:
        """Up to `size` contacts; `continuation` is that of the page before."""
        async with UnitOfWork(self._container) as work:
            return await work.repository(Contact).read_page(size, continuation)

    async def change(self, identifier: str, accepts: Accepts, apply: Callable[[Contact], None]) -> Contact:
        """Apply a change to a version that the caller accepts, and store it with the events it raises.

        PreconditionFailed where another version is stored, or someone else was first.
        """
        async with UnitOfWork(self._container) as work:
            contact = await work.repository(Contact).read(identifier)
            _check_version(contact, accepts)
            apply(contact)
            await _commit(work)
        return contact

    async def delete(self, identifier: str, accepts: Accepts) -> None:
        """Mark a contact as deleted, with its deleted event; otherwise as `change`."""
        async with UnitOfWork(self._container) as work:
            contacts = work.repository(Contact)
            contact = await contacts.read(identifier)
            _check_version(contact, accepts)
            contacts.delete(contact)
            await _commit(work)


def _check_version(contact: Contact, accepts: Accepts) -> None:
    if not accepts(contact.etag or ""):
        raise PreconditionFailed(f"Contact '{contact.id}' is stored in another version than the caller's.")


async def _commit(work: UnitOfWork) -> None:
    """Commit; what nobody knows to be done or not is asked for again, which does it once."""
    for _ in range(_REPETITIONS):
        try:
            await work.commit()
        except CommitUncertain:
            await asyncio.sleep(_PAUSE_S)
        else:
            return
    await work.commit()
