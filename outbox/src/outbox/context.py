"""The container context: what belongs to one commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox import traceparent
from outbox.batch import Batch
from outbox.data_object import DataObject, EntityState, Position, entity_object, event_object
from outbox.entities import (
    DomainEntity,
    adopt_version,
    mark_saved,
    name_of,
    partition_of,
    raised_by,
    sequence_of,
)
from outbox.errors import (
    CommitUncertain,
    Conflict,
    InvalidDocument,
    NotFound,
    PreconditionFailed,
    Refused,
    ServiceRefused,
    Unavailable,
)
from outbox.events import DomainEvent, Raised, next_moment
from outbox.execution import execute, read_document

_ANY_VERSION = "*"
# Of a commit that overwrites whatever is stored, where others write meanwhile.
_REPETITIONS = 9


@dataclass(frozen=True, slots=True)
class _Tracked:
    entity: DomainEntity
    state: EntityState
    if_match: str | None

    @property
    def is_to_be_saved(self) -> bool:
        return self.state is not EntityState.READ or bool(self.entity.domain_events)

    def as_object(self, sequence: int) -> DataObject[DomainEntity]:
        if self.state is EntityState.CREATED:
            return entity_object(self.entity, EntityState.CREATED, None, sequence)
        if self.entity.is_new:
            raise InvalidDocument(f"{name_of(self.entity)} is new, and an event is about it: create() it as well.")
        return entity_object(self.entity, EntityState.UPDATED, self.entity.etag, sequence)


@dataclass(frozen=True, slots=True)
class _Happened:
    """An event and the entity it is about."""

    raised: Raised
    about: DomainEntity


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
        self._events: list[_Happened] = []
        self._traceparents: dict[str, str | None] = {}
        self._unsettled: Batch | None = None
        self._saving = False

    def add(self, entity: DomainEntity, state: EntityState, if_match: str | None = None) -> None:
        """Track an entity; `if_match` is the ETag that it must have been read with, `*` stands for any version."""
        self._tracked[id(entity)] = _Tracked(entity, state, if_match)

    def add_event(self, event: DomainEvent, about: DomainEntity) -> None:
        """Track an event besides those that the entity raised, and the entity, which counts its events.

        Raises:
            NotFound: The entity is deleted, and nothing more can happen to it.
        """
        if about.deleted:
            raise NotFound(f"{name_of(about)} is deleted: {event.action} cannot happen to it.")
        self._tracked.setdefault(id(about), _Tracked(about, EntityState.READ, None))
        self._events.append(_Happened(Raised(event, next_moment()), about))

    def forget(self, entity: DomainEntity) -> None:
        """Leave an entity, and all events about it, out of the commit."""
        self._tracked.pop(id(entity), None)
        self._events = [happened for happened in self._events if happened.about is not entity]

    def reset(self) -> None:
        """Forget everything."""
        self._tracked.clear()
        self._events.clear()
        self._settled()

    @property
    def data_objects(self) -> list[DataObject[Any]]:
        """What a commit would write: the entities, then all events, what happened first first.

        Raises:
            InvalidDocument: One of them cannot be stored.
        """
        tracked = self._to_be_saved()
        last = {id(each.entity): sequence_of(each.entity) for each in tracked}
        placed = []
        for order, happened in enumerate(self._happened(tracked)):
            last[id(happened.about)] += 1
            placed.append((happened, Position(last[id(happened.about)], order)))
        entities = [each.as_object(last[id(each.entity)]) for each in tracked]
        return [*entities, *(self._event_object(happened, position) for happened, position in placed)]

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
        self._check_demanded()
        for _ in range(_REPETITIONS):
            try:
                return await self._attempt()
            except PreconditionFailed:
                if self._unsettled is not None or not await self._adopt_versions():
                    raise
        return await self._attempt()

    async def _attempt(self) -> list[DataObject[Any]]:
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

    def _check_demanded(self) -> None:
        for each in self._to_be_saved():
            if each.if_match not in (None, _ANY_VERSION, each.entity.etag):
                raise PreconditionFailed(f"{name_of(each.entity)} was read in another version than demanded.")

    async def _adopt_versions(self) -> bool:
        """Go on with the stored version of each entity that is to be saved over any; whether one was another.

        Not without a condition: the numbers of an entity's events go on where those of the stored version end, and
        the repetition of a commit that was done is known by the version it replaced.

        Raises:
            NotFound: An entity is deleted, or gone.
            OutboxError: It could not be read; nothing was written.
        """
        over_any = [each.entity for each in self._to_be_saved() if each.if_match == _ANY_VERSION]
        adopted = [adopt_version(entity, await self._stored(entity)) for entity in over_any]
        return any(adopted)

    async def _stored(self, entity: DomainEntity) -> dict[str, Any]:
        try:
            return await read_document(self.container, entity.id, partition_of(entity), name_of(entity))
        except Unavailable as error:
            raise CommitUncertain(error.what) from error

    def _saved(self, objects: list[DataObject[Any]], etags: list[str]) -> None:
        told = {source.id for source in objects if isinstance(source.source, DomainEvent)}
        for source, etag in zip(objects, etags, strict=True):
            if isinstance(source.source, DomainEntity):
                mark_saved(source.source, etag, told, source.sequence)
                self._tracked[id(source.source)] = _Tracked(source.source, EntityState.READ, None)
        self._events = [happened for happened in self._events if happened.raised.event.id not in told]
        self._settled()

    def _settled(self) -> None:
        self._traceparents.clear()
        self._unsettled = None

    def _to_be_saved(self) -> list[_Tracked]:
        spoken_of = {id(happened.about) for happened in self._events}
        return [each for each in self._tracked.values() if each.is_to_be_saved or id(each.entity) in spoken_of]

    def _happened(self, tracked: list[_Tracked]) -> list[_Happened]:
        own = [_Happened(raised, each.entity) for each in tracked for raised in raised_by(each.entity)]
        return sorted([*own, *self._events], key=lambda happened: happened.raised.moment)

    def _event_object(self, happened: _Happened, position: Position) -> DataObject[DomainEvent]:
        event = happened.raised.event
        # Kept, so that a commit that is repeated repeats the same documents.
        if event.id not in self._traceparents:
            self._traceparents[event.id] = traceparent.current()
        return event_object(
            event,
            happened.about,
            position,
            document_type=self.event_type,
            ttl=self.event_ttl,
            traceparent=self._traceparents[event.id],
        )
