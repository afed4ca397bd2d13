"""The container context: tracks what one commit writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox_relay.outbox import traceparent
from outbox_relay.outbox.batch import Batch
from outbox_relay.outbox.data_object import DataObject, EntityState, Position, entity_object, event_object
from outbox_relay.outbox.entities import (
    DomainEntity,
    name_of,
    partition_key_of,
    raised_by,
    sequence_of,
)
from outbox_relay.outbox.errors import (
    CommitUncertain,
    Conflict,
    InvalidDocument,
    NotFound,
    PreconditionFailed,
    Refused,
    ServiceRefused,
    Unavailable,
)
from outbox_relay.outbox.events import DomainEvent, Raised, next_moment
from outbox_relay.outbox.execution import execute, read_document
from outbox_relay.outbox.versions import adopt_version, mark_saved

_ANY_VERSION = "*"
# Of a commit with if_match="*", when other writers keep changing the entity.
_RETRIES = 9


@dataclass(frozen=True, slots=True)
class _Tracked:
    entity: DomainEntity
    state: EntityState
    if_match: str | None

    @property
    def is_changed(self) -> bool:
        return self.state is not EntityState.READ or bool(self.entity.domain_events)

    def as_object(self, sequence: int) -> DataObject[DomainEntity]:
        if self.state is EntityState.CREATED:
            return entity_object(self.entity, EntityState.CREATED, None, sequence)
        if self.entity.is_new:
            raise InvalidDocument(
                f"An event is about {name_of(self.entity)}, which is new: create() the entity as well."
            )
        return entity_object(self.entity, EntityState.UPDATED, self.entity.etag, sequence)


@dataclass(frozen=True, slots=True)
class _PendingEvent:
    """An event and the entity it is about."""

    raised: Raised
    about: DomainEntity


class ContainerContext:
    """Tracks the entities and events of one unit of work and saves them in one transactional batch.

    Attributes:
        container: The container; any number of contexts can share it.
        event_ttl: The time to live of event documents, in seconds.
        event_type: The `type` of event documents, by which the relay selects them.
    """

    def __init__(self, container: ContainerProxy, *, event_ttl: int, event_type: str) -> None:
        self.container = container
        self.event_ttl = event_ttl
        self.event_type = event_type
        # Keyed by identity, because dataclass entities are not hashable.
        self._tracked: dict[int, _Tracked] = {}
        self._events: list[_PendingEvent] = []
        self._traceparents: dict[str, str | None] = {}
        self._in_doubt: Batch | None = None
        self._saving = False

    def add(self, entity: DomainEntity, state: EntityState, if_match: str | None = None) -> None:
        """Track an entity. `if_match` is the ETag it must have been read with; `*` accepts any version."""
        self._tracked[id(entity)] = _Tracked(entity, state, if_match)

    def add_event(self, event: DomainEvent, about: DomainEntity) -> None:
        """Track an event that the entity did not raise itself, and the entity, whose document numbers its events.

        Raises:
            NotFound: The entity is deleted and takes no more events.
        """
        if about.deleted:
            raise NotFound(f"{name_of(about)} is deleted and cannot have the event {event.action}.")
        self._tracked.setdefault(id(about), _Tracked(about, EntityState.READ, None))
        self._events.append(_PendingEvent(Raised(event, next_moment()), about))

    def forget(self, entity: DomainEntity) -> None:
        """Stop tracking an entity and all events about it."""
        self._tracked.pop(id(entity), None)
        self._events = [pending for pending in self._events if pending.about is not entity]

    def reset(self) -> None:
        """Stop tracking everything."""
        self._tracked.clear()
        self._events.clear()
        self._end_attempt()

    @property
    def data_objects(self) -> list[DataObject[Any]]:
        """The documents of a commit: the entities, then all events in the order raised.

        Raises:
            InvalidDocument: One of them cannot be stored.
        """
        changed = self._changed()
        last = {id(each.entity): sequence_of(each.entity) for each in changed}
        numbered = []
        for order, pending in enumerate(self._pending_events(changed)):
            last[id(pending.about)] += 1
            numbered.append((pending, Position(last[id(pending.about)], order)))
        entities = [each.as_object(last[id(each.entity)]) for each in changed]
        return [*entities, *(self._event_object(pending, position) for pending, position in numbered)]

    async def save_changes(self) -> list[DataObject[Any]]:
        """Write all tracked changes in one transactional batch; the entities stay tracked, as read.

        Returns:
            What was written. If nothing has changed, an empty list, without a request.

        Raises:
            OutboxError: Everything is still tracked; see `outbox.errors`.
            RuntimeError: Another task is committing this context.
        """
        if self._saving:
            raise RuntimeError("Another task is committing this unit of work. Give each task its own.")
        self._saving = True
        try:
            return await self._save()
        finally:
            self._saving = False

    async def _save(self) -> list[DataObject[Any]]:
        self._check_if_match()
        for _ in range(_RETRIES):
            try:
                return await self._attempt()
            except PreconditionFailed:
                if self._in_doubt is not None or not await self._adopt_stored_versions():
                    raise
        return await self._attempt()

    async def _attempt(self) -> list[DataObject[Any]]:
        objects = self.data_objects
        if not objects:
            return []
        batch = Batch.of(objects)
        if self._in_doubt is not None and batch != self._in_doubt:
            raise PreconditionFailed(
                f"The outcome of {self._in_doubt.name} is unknown, and it was changed since. If it was applied, "
                "the earlier state is stored."
            )
        earlier = self._in_doubt
        # Set before the request, because this task may be cancelled while it waits for the response.
        self._in_doubt = batch
        try:
            etags = await execute(self.container, batch)
        except (Conflict, PreconditionFailed, NotFound):
            self._in_doubt = None
            raise
        except (Refused, ServiceRefused):
            # This attempt was certainly not applied, but an earlier one may have been.
            self._in_doubt = earlier
            raise
        self._saved(objects, etags)
        return objects

    def _check_if_match(self) -> None:
        for each in self._changed():
            if each.if_match not in (None, _ANY_VERSION, each.entity.etag):
                raise PreconditionFailed(
                    f"{name_of(each.entity)} was read in another version than `if_match` requires. Nothing was "
                    "written."
                )

    async def _adopt_stored_versions(self) -> bool:
        """Take the stored ETag and sequence of each entity with `if_match="*"`. Return whether any was different.

        These entities are not written unconditionally: their events continue the stored sequence, and a commit
        that was already applied is recognised by the version it replaced.

        Raises:
            NotFound: An entity is deleted or no longer exists.
            OutboxError: An entity could not be read; nothing was written.
        """
        entities = [each.entity for each in self._changed() if each.if_match == _ANY_VERSION]
        adopted = [adopt_version(entity, await self._read(entity)) for entity in entities]
        return any(adopted)

    async def _read(self, entity: DomainEntity) -> dict[str, Any]:
        try:
            return await read_document(self.container, entity.id, partition_key_of(entity), name_of(entity))
        except Unavailable as error:
            raise CommitUncertain(error.what) from error

    def _saved(self, objects: list[DataObject[Any]], etags: list[str]) -> None:
        stored = {source.id for source in objects if isinstance(source.source, DomainEvent)}
        for source, etag in zip(objects, etags, strict=True):
            if isinstance(source.source, DomainEntity):
                mark_saved(source.source, etag, stored, source.sequence)
                self._tracked[id(source.source)] = _Tracked(source.source, EntityState.READ, None)
        self._events = [pending for pending in self._events if pending.raised.event.id not in stored]
        self._end_attempt()

    def _end_attempt(self) -> None:
        self._traceparents.clear()
        self._in_doubt = None

    def _changed(self) -> list[_Tracked]:
        with_events = {id(pending.about) for pending in self._events}
        return [each for each in self._tracked.values() if each.is_changed or id(each.entity) in with_events]

    def _pending_events(self, changed: list[_Tracked]) -> list[_PendingEvent]:
        raised = [_PendingEvent(raised, each.entity) for each in changed for raised in raised_by(each.entity)]
        return sorted([*raised, *self._events], key=lambda pending: pending.raised.moment)

    def _event_object(self, pending: _PendingEvent, position: Position) -> DataObject[DomainEvent]:
        event = pending.raised.event
        # Kept, so that a repeated commit writes the same documents.
        if event.id not in self._traceparents:
            self._traceparents[event.id] = traceparent.current()
        return event_object(
            event,
            pending.about,
            position,
            document_type=self.event_type,
            ttl=self.event_ttl,
            traceparent=self._traceparents[event.id],
        )
