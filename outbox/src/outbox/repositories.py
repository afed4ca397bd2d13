"""Repositories: where entities and events come from and go to, on one container context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from azure.core import MatchConditions

from outbox.context import ContainerContext
from outbox.data_object import EntityState, can_be_id
from outbox.entities import DomainEntity, name_of, restore
from outbox.errors import NotFound, NotModified
from outbox.events import DomainEvent
from outbox.execution import read_document
from outbox.paging import Listing, Page

E = TypeVar("E", bound=DomainEntity)


class Repository(Generic[E]):
    """The entities of one class. What is created, changed or deleted here is written by the unit of work's
    `commit()`.
    """

    def __init__(self, context: ContainerContext, kind: type[E]) -> None:
        self._context = context
        self._kind = kind

    def create(self, entity: E) -> None:
        """Have a new entity saved, with its created event.

        Raises:
            ValueError: It was saved before.
        """
        if not entity.is_new:
            raise ValueError(f"{name_of(entity)} was saved before: update() it.")
        self._context.add(entity, EntityState.CREATED)

    async def read(
        self,
        identifier: str,
        *,
        partition_key: str | None = None,
        if_none_match: str | None = None,
        include_deleted: bool = False,
    ) -> E:
        """The entity as it is stored; from now on `commit()` saves it if it has raised events.

        Args:
            identifier: Its id.
            partition_key: Its logical partition; None stands for the id.
            if_none_match: An ETag, in its quotes, of the version the caller has already.
            include_deleted: Whether a deleted entity is given too.

        Raises:
            NotFound: There is none of this class, or it is deleted.
            NotModified: The stored version is the one the caller has.
            Throttled, Unavailable, ServiceRefused: It could not be read.
        """
        subject = f"{self._kind.document_type} '{identifier}'"
        if not can_be_id(identifier):
            raise NotFound(f"There is no {subject}.")
        condition: dict[str, Any] = {}
        if if_none_match is not None:
            condition = {"etag": if_none_match, "match_condition": MatchConditions.IfModified}
        key = identifier if partition_key is None else partition_key
        document = await read_document(self._context.container, identifier, key, subject, **condition)
        if not document:
            raise NotModified(f"{subject} is unchanged.")
        if document.get("type") != self._kind.document_type:
            raise NotFound(f"There is no {subject}; what has this id is a '{document.get('type')}'.")
        entity = restore(self._kind, document)
        if entity.deleted and not include_deleted:
            raise NotFound(f"{subject} is deleted.")
        self._context.add(entity, EntityState.READ)
        return entity

    def update(self, entity: E, *, if_match: str | None = None) -> None:
        """Have an entity saved as it is at the commit, whether or not it has raised events.

        Args:
            entity: One that was read, or saved before.
            if_match: The ETag to demand, in its quotes: PreconditionFailed where the entity was read in another
                version, or it is stored in another. None stands for that of the version that was read, `*` for
                whatever is stored at the commit: it is overwritten, unless it is deleted.

        Raises:
            ValueError: It is new.
            NotFound: It is deleted.
        """
        if entity.is_new:
            raise ValueError(f"{name_of(entity)} is new: create() it.")
        if entity.deleted:
            raise NotFound(f"{name_of(entity)} is deleted.")
        self._context.add(entity, EntityState.UPDATED, if_match)

    def delete(self, entity: E, *, if_match: str | None = None, ttl: int | None = None) -> None:
        """Have an entity saved as deleted, with its deleted event.

        Args:
            entity: One that was read, or saved before.
            if_match: As for `update`.
            ttl: Seconds after which Cosmos DB removes the document for good; None keeps it as long as the others.

        Raises:
            ValueError: It is new, or `ttl` is none.
            NotFound: It is deleted already.
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
        """Up to `page_size` entities, in the container's own order, and the token for the next page.

        Args:
            page_size: At least 1.
            continuation: The `continuation` of the page before; None for the first one.
            partition_key: One logical partition; None stands for all, which costs a query of every physical
                partition.
            where: A condition in Cosmos DB's SQL on the document `c`, such as `c.data.email = @email`.
            parameters: The values of its parameters, by their names with the `@`.
            include_deleted: Whether deleted entities are given too.

        Raises:
            InvalidContinuation: `continuation` is no token of this listing.
            Throttled, Unavailable, ServiceRefused: It could not be read.
        """
        if page_size < 1:
            raise ValueError(f"A page has at least one entity, not {page_size}.")
        listing = Listing(self._kind.document_type, partition_key, where, parameters or {}, include_deleted)
        documents, following = await listing.read(self._context.container, page_size, continuation)
        entities = tuple(restore(self._kind, document) for document in documents)
        for entity in entities:
            self._context.add(entity, EntityState.READ)
        return Page(entities, following)


class EventRepository:
    """Events besides those that entities raise: what is told without a change of the entity's own data."""

    def __init__(self, context: ContainerContext) -> None:
        self._context = context

    def create(self, event: DomainEvent, about: DomainEntity) -> None:
        """Have `event` saved by the commit, together with the entity it is about, which counts its events.

        Raises:
            NotFound: The entity is deleted, and nothing more can happen to it.
        """
        self._context.add_event(event, about)
