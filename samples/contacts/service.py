"""The use cases of contacts. Each is one unit of work on the store: Cosmos DB or an SQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from outbox_relay.outbox import CommitUncertain, Page, PreconditionFailed
from samples.contacts.domain import Contact

_COMMIT_RETRIES = 2
_RETRY_DELAY_S = 0.2

Accepts = Callable[[str], bool]
"""A function that returns True if the caller accepts the version with this ETag."""


class Repository(Protocol):
    """The contacts of a unit of work, as `outbox.Repository` has them."""

    def create(self, contact: Contact, /) -> None: ...

    async def read(self, identifier: str, /, *, if_none_match: str | None = None) -> Contact: ...

    async def read_page(self, page_size: int, continuation: str | None, /) -> Page[Contact]: ...

    def delete(self, contact: Contact, /) -> None: ...


class Work(Protocol):
    """A unit of work, as `outbox.UnitOfWork` is one."""

    def repository(self, kind: type[Contact], /) -> Repository: ...

    async def commit(self) -> object: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Contacts:
    """The use cases, safe for concurrent tasks. They raise the errors of `outbox`."""

    def __init__(self, begin: Callable[[], Work]) -> None:
        """`begin` returns a new unit of work."""
        self._begin = begin

    async def create(self, contact: Contact) -> Contact:
        """Store a new contact and its created event. Raises Conflict if the id is in use."""
        async with self._begin() as work:
            work.repository(Contact).create(contact)
            await _commit(work)
        return contact

    async def read(self, identifier: str, *, if_none_match: str | None = None) -> Contact:
        """Return a contact. Raises NotModified if `if_none_match` is its ETag."""
        async with self._begin() as work:
            return await work.repository(Contact).read(identifier, if_none_match=if_none_match)

    async def read_page(self, size: int, continuation: str | None) -> Page[Contact]:
        """Return up to `size` contacts. `continuation` is that of the previous page."""
        async with self._begin() as work:
            return await work.repository(Contact).read_page(size, continuation)

    async def change(self, identifier: str, accepts: Accepts, apply: Callable[[Contact], None]) -> Contact:
        """Apply a change to a contact and store it with the events it raises.

        Raises PreconditionFailed if the caller does not accept the stored version, or if it changes meanwhile.
        """
        async with self._begin() as work:
            contact = await work.repository(Contact).read(identifier)
            _check_version(contact, accepts)
            apply(contact)
            await _commit(work)
        return contact

    async def delete(self, identifier: str, accepts: Accepts) -> None:
        """Mark a contact as deleted and store its deleted event. Raises the same as `change`."""
        async with self._begin() as work:
            contacts = work.repository(Contact)
            contact = await contacts.read(identifier)
            _check_version(contact, accepts)
            contacts.delete(contact)
            await _commit(work)


def _check_version(contact: Contact, accepts: Accepts) -> None:
    if not accepts(contact.etag or ""):
        raise PreconditionFailed(f"Contact '{contact.id}' is stored in another version than the caller accepts.")


async def _commit(work: Work) -> None:
    """Commit, and repeat the commit while its outcome is unknown. It is applied once."""
    for _ in range(_COMMIT_RETRIES):
        try:
            await work.commit()
            return
        except CommitUncertain:
            await asyncio.sleep(_RETRY_DELAY_S)
    await work.commit()
