"""The domain entity: a business object that keeps what happened to it until it is saved."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

from outbox.errors import NotFound
from outbox.events import DomainEvent, Raised, new_id, next_moment, now
from outbox.payload import camel_case, first_small

NO_EXPIRY = -1
MAX_TTL_S = 2**31 - 1
_OWN_NAMES = ("deleted", "domain_events", "etag", "is_new")


@dataclass(frozen=True, slots=True)
class _Birth:
    """What stays of a created event, however often it is made anew."""

    event_id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=now)
    moment: int = field(default_factory=next_moment)


@dataclass(kw_only=True, eq=False)
class DomainEntity(ABC):
    """To be derived from: by a dataclass, or by a plain class that calls `super().__init__()`.

    Attributes:
        id: The document's id; a random UUID unless given.
        partition_key: The logical partition; None stands for the id. Entities that are committed together share
            one.
        document_type: The documents' `type`; the class's name with a small first letter unless a class sets its
            own.
        ttl: Seconds after its last change when a document of this class is removed; -1 for never.

    An entity belongs to one task at a time.
    """

    document_type: ClassVar[str] = "domainEntity"
    ttl: ClassVar[int] = NO_EXPIRY

    id: str = field(default_factory=new_id)
    partition_key: str | None = None
    _raised: list[Raised] = field(default_factory=list, init=False, repr=False, compare=False)
    _birth: _Birth = field(default_factory=_Birth, init=False, repr=False, compare=False)
    _sequence: int = field(default=0, init=False, repr=False, compare=False)
    _is_new: bool = field(default=True, init=False, repr=False, compare=False)
    _etag: str | None = field(default=None, init=False, repr=False, compare=False)
    _deleted: bool = field(default=False, init=False, repr=False, compare=False)
    _ttl_when_deleted: int | None = field(default=None, init=False, repr=False, compare=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _OWN_NAMES:
            if name in cls.__dict__:
                raise TypeError(f"{cls.__name__}.{name} hides what DomainEntity has by that name: rename it.")
        if "document_type" not in cls.__dict__:
            cls.document_type = first_small(cls.__name__)

    @abstractmethod
    def created_event(self) -> DomainEvent:
        """The event that tells of a new entity, made from its state at the commit; asked for more than once."""

    def deleted_event(self) -> DomainEvent:
        """The event that tells of a deletion."""
        raise TypeError(f"{type(self).__name__} cannot be deleted: it defines no deleted_event().")

    def to_data(self) -> dict[str, Any]:
        """What is stored of the entity, beside its id and whether it is deleted: JSON values.

        Raises:
            TypeError: Without a definition of its own, the class is no dataclass or a field holds a dataclass.
        """
        values = {item.name: getattr(self, item.name) for item in _stored_fields(type(self))}
        for name, value in values.items():
            if is_dataclass(value):
                raise TypeError(_needs_both(type(self), f"{name} is a dataclass"))
        return {camel_case(name): value for name, value in values.items()}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """The entity of which `to_data` gave this, `id` and `deleted` beside it; what is not there has its
        default.
        """
        stored = [item for item in _stored_fields(cls) if camel_case(item.name) in data]
        entity = cls(**{item.name: data[camel_case(item.name)] for item in stored if item.init})
        for item in stored:
            if not item.init:
                setattr(entity, item.name, data[camel_case(item.name)])
        return entity

    def add_event(self, event: DomainEvent) -> None:
        """Keep an event until the entity is saved, behind those that were raised before.

        An event whose class says `replaces_earlier` takes the place of an earlier one with the same action; a new
        entity leaves it out, as its created event tells all.

        Raises:
            NotFound: The entity is deleted, and nothing more can happen to it.
        """
        if self._deleted:
            raise NotFound(f"{name_of(self)} is deleted: {event.action} cannot happen to it.")
        if event.replaces_earlier:
            if self._is_new:
                return
            for place, earlier in enumerate(self._raised):
                if earlier.event.action == event.action:
                    self._raised[place] = replace(earlier, event=event)
                    return
        self._raised.append(Raised(event, next_moment()))

    def delete(self, *, ttl: int | None = None) -> None:
        """Mark the entity as deleted, and raise its deleted event; a second time, do nothing.

        Args:
            ttl: Seconds after which Cosmos DB removes the document for good; None keeps the class's `ttl`.

        Raises:
            ValueError: The entity is new, or `ttl` is neither -1 nor a positive 32-bit number.
        """
        check_ttl(ttl)
        if self._is_new:
            raise ValueError(f"{name_of(self)} is new: there is nothing to delete.")
        if not self._deleted:
            self.add_event(self.deleted_event())
            self._deleted = True
            self._ttl_when_deleted = ttl

    @property
    def domain_events(self) -> tuple[DomainEvent, ...]:
        """What happened since the entity was read or last saved, in order; to a new one, its creation first."""
        return tuple(raised.event for raised in raised_by(self))

    @property
    def etag(self) -> str | None:
        """The version last read or saved, in quotes as in HTTP; None for what is new or deleted."""
        return self._etag

    @property
    def is_new(self) -> bool:
        """Whether the entity was never saved."""
        return self._is_new

    @property
    def deleted(self) -> bool:
        return self._deleted


E = TypeVar("E", bound=DomainEntity)


def name_of(entity: DomainEntity) -> str:
    """The entity as messages call it: `order '4711'`."""
    return f"{entity.document_type} '{entity.id}'"


def raised_by(entity: DomainEntity) -> tuple[Raised, ...]:
    """The entity's events in order, with their moments; a created event has that at which the entity was made."""
    if not entity._is_new:
        return tuple(entity._raised)
    created = copy.copy(entity.created_event())
    # One entity is created once: its event is the same one, however often its state is looked at.
    object.__setattr__(created, "id", entity._birth.event_id)
    object.__setattr__(created, "created_at", entity._birth.created_at)
    return (Raised(created, entity._birth.moment), *entity._raised)


def partition_of(entity: DomainEntity) -> str:
    """The logical partition the entity lives in."""
    return entity.id if entity.partition_key is None else entity.partition_key


def ttl_of(entity: DomainEntity) -> int:
    """The `ttl` of the entity's document, in seconds."""
    return entity.ttl if entity._ttl_when_deleted is None else entity._ttl_when_deleted


def sequence_of(entity: DomainEntity) -> int:
    """The number of the entity's last stored event; 0 where there is none, or it was stored without a number."""
    return entity._sequence


def restore(kind: type[E], document: Mapping[str, Any]) -> E:
    """The entity that is stored as `document`."""
    data = document["data"]
    entity = kind.from_data(data)
    entity.id = document["id"]
    entity.partition_key = document["partitionKey"]
    entity._raised.clear()
    entity._is_new = False
    entity._etag = document["_etag"]
    entity._sequence = _stored_sequence(document)
    entity._deleted = data.get("deleted") is True
    # A deleted document's own time to live goes on to count; without one, the class's does.
    entity._ttl_when_deleted = document.get("ttl") if entity._deleted else None
    return entity


def adopt_version(entity: DomainEntity, document: Mapping[str, Any]) -> bool:
    """Have the entity saved over the version stored as `document`; whether that is another than it would be.

    Raises:
        NotFound: That version is deleted.
    """
    if document["data"].get("deleted") is True:
        raise NotFound(f"{name_of(entity)} is deleted.")
    is_another = bool(entity._etag != document["_etag"])
    entity._etag = document["_etag"]
    entity._sequence = _stored_sequence(document)
    return is_another


def mark_saved(entity: DomainEntity, etag: str, told: Collection[str], sequence: int) -> None:
    """Take note that a commit stored the entity as version `etag`, with the events whose ids are `told`; the last
    of all its events has the number `sequence`.
    """
    entity._is_new = False
    entity._sequence = sequence
    # The version of a deletion is nobody's to read: a conditional read would answer "not modified" to it.
    entity._etag = None if entity._deleted else etag
    entity._raised = [raised for raised in entity._raised if raised.event.id not in told]


def check_ttl(ttl: int | None) -> None:
    """ValueError where `ttl` is no time to live:
    https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live.
    """
    if ttl is not None and ttl != NO_EXPIRY and not 0 < ttl <= MAX_TTL_S:
        raise ValueError(f"A time to live is -1 or 1 to {MAX_TTL_S} seconds, not {ttl}.")


def _stored_sequence(document: Mapping[str, Any]) -> int:
    # Documents that were written before events were numbered have none.
    stored = document.get("sequence")
    return stored if isinstance(stored, int) else 0


def _stored_fields(kind: type[DomainEntity]) -> list[Field[Any]]:
    if "__dataclass_fields__" not in kind.__dict__:
        raise TypeError(_needs_both(kind, "it is no dataclass"))
    inherited = {item.name for item in fields(DomainEntity)}
    return [item for item in fields(kind) if item.name not in inherited]


def _needs_both(kind: type[DomainEntity], why: str) -> str:
    return f"{kind.__name__} has to define to_data() and from_data(): {why}."
