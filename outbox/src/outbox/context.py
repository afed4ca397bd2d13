"""The container context: what belongs to one commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox import traceparent
from outbox.batch import Batch
from outbox.data_object import DataObject, EntityState, entity_object, event_object
from outbox.entities import DomainEntity, mark_saved
from outbox.errors import Conflict, NotFound, PreconditionFailed, Refused, ServiceRefused
from outbox.events import DomainEvent
from outbox.execution import execute


@dataclass(frozen=True, slots=True)
class _Tracked:
    entity: DomainEntity
    state: EntityState
    if_match: str | None

    @property
    def is_to_be_saved(self) -> bool:
        return self.state is not EntityState.READ or bool(self.entity.domain_events)

    def as_object(self) -> DataObject[DomainEntity]:
        if self.state is EntityState.CREATED:
            return entity_object(self.entity, EntityState.CREATED, None)
        return entity_object(self.entity, EntityState.UPDATED, self.if_match or self.entity.etag)


class ContainerContext:
    """Tracks the entities and events of one unit of work, and saves them in one transactional batch.

    Attributes:
        container: The container, shared with any number of contexts.
        event_ttl: The time to live of event documents, in seconds.
        event_type: Their `type`: what the relay looks for.
    """

    def __init__(self, container: ContainerProxy, *, event_ttl: int, event_type: str) -> None:
        self.container = container
        self.event_ttl = event_ttl
        self.event_type = event_type
        # By identity: entities that are dataclasses have no hash.
        self._tracked: dict[int, _Tracked] = {}
        self._events: list[tuple[DomainEvent, DomainEntity]] = []
        self._traceparents: dict[str, str | None] = {}
        self._unsettled: Batch | None = None
        self._saving = False

    def add(self, entity: DomainEntity, state: EntityState, if_match: str | None = None) -> None:
        """Track an entity; `if_match` is the ETag to demand instead of the one it was read with."""
        self._tracked[id(entity)] = _Tracked(entity, state, if_match)

    def add_event(self, event: DomainEvent, about: DomainEntity) -> None:
        """Track an event besides those that the entity raised."""
        self._events.append((event, about))

    def forget(self, entity: DomainEntity) -> None:
        """Leave an entity, and all events about it, out of the commit."""
        self._tracked.pop(id(entity), None)
        self._events = [(event, about) for event, about in self._events if about is not entity]

    def reset(self) -> None:
        """Forget everything."""
        self._tracked.clear()
        self._events.clear()
        self._settled()

    @property
    def data_objects(self) -> list[DataObject[Any]]:
        """What a commit would write: each entity, followed by its events in order; then the other events.

        Raises:
            InvalidDocument: One of them cannot be stored.
        """
        return list(self._objects())

    async def save_changes(self) -> list[DataObject[Any]]:
        """Write all that is tracked in one transactional batch; afterwards it is tracked as read.

        Returns:
            What was written; nothing, without asking the service, where nothing has changed.

        Raises:
            OutboxError: Nothing was written, and everything is still tracked; see `outbox.errors`.
        """
        if self._saving:
            raise RuntimeError(
                "A commit of this unit of work is under way: give each task a unit of work of its own."
            )
        self._saving = True
        try:
            return await self._save()
        finally:
            self._saving = False

    async def _save(self) -> list[DataObject[Any]]:
        objects = self.data_objects
        if not objects:
            return []
        batch = Batch.of(objects)
        if self._unsettled is not None and batch != self._unsettled:
            raise PreconditionFailed(
                f"Whether {self._unsettled.name} was done is not known, and it was changed since: what was done, "
                "if anything, is the earlier state."
            )
        unsettled = self._unsettled
        # Also where this task is cancelled before there is an answer.
        self._unsettled = batch
        try:
            etags = await execute(self.container, batch)
        except (Conflict, PreconditionFailed, NotFound):
            self._unsettled = None
            raise
        except (Refused, ServiceRefused):
            # Certain of this attempt, but it says nothing of an earlier one.
            self._unsettled = unsettled
            raise
        self._saved(objects, etags)
        return objects

    def _saved(self, objects: list[DataObject[Any]], etags: list[str]) -> None:
        told = {source.id for source in objects if isinstance(source.source, DomainEvent)}
        for source, etag in zip(objects, etags, strict=True):
            if isinstance(source.source, DomainEntity):
                mark_saved(source.source, etag, told)
                self._tracked[id(source.source)] = _Tracked(source.source, EntityState.READ, None)
        self._events = [(event, about) for event, about in self._events if event.id not in told]
        self._settled()

    def _settled(self) -> None:
        self._traceparents.clear()
        self._unsettled = None

    def _objects(self) -> Iterator[DataObject[Any]]:
        for tracked in list(self._tracked.values()):
            if tracked.is_to_be_saved:
                yield tracked.as_object()
                for event in tracked.entity.domain_events:
                    yield self._event_object(event, tracked.entity)
        for event, about in self._events:
            yield self._event_object(event, about)

    def _event_object(self, event: DomainEvent, about: DomainEntity) -> DataObject[DomainEvent]:
        # Kept, so that a commit that is repeated repeats the same documents.
        if event.id not in self._traceparents:
            self._traceparents[event.id] = traceparent.current()
        return event_object(event, about, self.event_type, self.event_ttl, self._traceparents[event.id])
