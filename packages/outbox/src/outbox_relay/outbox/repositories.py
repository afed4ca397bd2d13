"""Repositories: read and write entities and events through a container context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from azure.core import MatchConditions

from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.data_object import ID_RULE, EntityState, can_be_id
from outbox_relay.outbox.entities import DomainEntity, check_class, name_of
from outbox_relay.outbox.errors import NotFound, NotModified
from outbox_relay.outbox.events import DomainEvent
from outbox_relay.outbox.execution import read_document
from outbox_relay.outbox.paging import Listing, Page
from outbox_relay.outbox.versions import restore

E = TypeVar("E", bound=DomainEntity)


class Repository(Generic[E]):
    """The entities of one class. Changes are written by the `commit()` of the unit of work."""

    def __init__(self, context: ContainerContext, kind: type[E]) -> None:
        """Create a repository. Raises TypeError if entities of the class could not be stored and read again."""
        check_class(kind)
        self._context = context
        self._kind = kind

    def create(self, entity: E) -> None:
        """Add a new entity, with its created event, to the commit.

        Raises:
            ValueError: The entity is already stored.
        """
        if not entity.is_new:
            raise ValueError(f"{name_of(entity)} is already stored: call update().")
        self._context.add(entity, EntityState.CREATED)

    async def read(
        self,
        identifier: str,
        *,
        partition_key: str | None = None,
        if_none_match: str | None = None,
        include_deleted: bool = False,
    ) -> E:
        """Return the stored entity and track it: `commit()` saves it if it has raised events.

        Args:
            identifier: The entity's id.
            partition_key: The entity's partition key; None means the id.
            if_none_match: The ETag, in quotes, of the version the caller already has.
            include_deleted: Whether to return a deleted entity.

        Raises:
            NotFound: No entity of this class has the id, or it is deleted.
            NotModified: The caller has the stored version.
            Throttled, Unavailable, ServiceRefused: The entity could not be read.
        """
        subject = f"{self._kind.document_type} '{identifier}'"
        if not can_be_id(identifier):
            raise NotFound(f"There is no {subject} that can be read: an id {ID_RULE}.")
        condition: dict[str, Any] = {}
        if if_none_match is not None:
            condition = {"etag": if_none_match, "match_condition": MatchConditions.IfModified}
        key = identifier if partition_key is None else partition_key
        document = await read_document(self._context.container, identifier, key, subject, **condition)
        if not document:
            raise NotModified(f"{subject} has not changed.")
        if document.get("type") != self._kind.document_type:
            raise NotFound(
                f"There is no {subject}. The document with this id has the type '{document.get('type')}'."
            )
        entity = restore(self._kind, document)
        if entity.deleted and not include_deleted:
            raise NotFound(f"{subject} is deleted.")
        self._context.add(entity, EntityState.READ)
        return entity

    def update(self, entity: E, *, if_match: str | None = None) -> None:
        """Add an entity to the commit, whether or not it has raised events.

        Args:
            entity: An entity that was read or saved before.
            if_match: The ETag to require, in quotes. The commit raises PreconditionFailed if another version was
                read or is stored. None requires the version that was read. `*` overwrites the stored version,
                unless it is deleted.

        Raises:
            ValueError: The entity is new.
            NotFound: The entity is deleted.
        """
        if entity.is_new:
            raise ValueError(f"{name_of(entity)} is new: call create().")
        if entity.deleted:
            raise NotFound(f"{name_of(entity)} is deleted.")
        self._context.add(entity, EntityState.UPDATED, if_match)

    def delete(self, entity: E, *, if_match: str | None = None, ttl: int | None = None) -> None:
        """Add an entity to the commit as deleted, with its deleted event.

        Args:
            entity: An entity that was read or saved before.
            if_match: As for `update`.
            ttl: Seconds after which Cosmos DB removes the document; None keeps the `ttl` of the class.

        Raises:
            ValueError: The entity is new, or `ttl` is not a valid time to live.
            NotFound: The entity is already deleted.
        """
        if entity.deleted:
            raise NotFound(f"{name_of(entity)} is deleted.")
        entity.delete(ttl=ttl)
        self._context.add(entity, EntityState.UPDATED, if_match)

    async def read_page(
        self,
        page_size: int = 50,
        continuation: str | None = None,
        *,
        partition_key: str | None = None,
        where: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        include_deleted: bool = False,
    ) -> Page[E]:
        """Return up to `page_size` entities, in the container's order, and the continuation for the next page.

        Args:
            page_size: At least 1.
            continuation: The `continuation` of the previous page; None for the first page.
            partition_key: One partition key; None means all, which queries every physical partition.
            where: A condition in Cosmos DB SQL on the document `c`, for example `c.data.email = @email`.
            parameters: The values of the parameters in `where`, by name with the `@`.
            include_deleted: Whether to return deleted entities.

        Raises:
            InvalidContinuation: `continuation` is not one of this listing.
            Throttled, Unavailable, ServiceRefused: The page could not be read.
        """
        if page_size < 1:
            raise ValueError(f"page_size must be at least 1, not {page_size}.")
        listing = Listing(self._kind.document_type, partition_key, where, parameters or {}, include_deleted)
        documents, next_page = await listing.read(self._context.container, page_size, continuation)
        entities = tuple(restore(self._kind, document) for document in documents)
        for entity in entities:
            self._context.add(entity, EntityState.READ)
        return Page(entities, next_page)


class EventRepository:
    """Events that an entity does not raise itself, for example because its data does not change."""

    def __init__(self, context: ContainerContext) -> None:
        self._context = context

    def create(self, event: DomainEvent, about: DomainEntity) -> None:
        """Add `event` to the commit, with the entity it is about, whose document numbers its events.

        Raises:
            NotFound: The entity is deleted and takes no more events.
        """
        self._context.add_event(event, about)
