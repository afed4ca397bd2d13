"""The domain entity: a business object that collects its events until it is saved."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

from outbox_relay.outbox.errors import NotFound
from outbox_relay.outbox.events import DomainEvent, Raised, new_id, next_moment, now
from outbox_relay.outbox.fields import lower_first
from outbox_relay.outbox.mapping import Unknown, check_entity_class, restored_entity, stored_entity

NO_EXPIRY = -1
MAX_TTL_S = 2**31 - 1
_OWN_NAMES = ("deleted", "domain_events", "etag", "is_new")


@dataclass(slots=True, eq=False)
class State:
    """The library's own data about an entity, in addition to its fields.

    Attributes:
        raised: The events since the entity was read or last saved, without the created event.
        event_id, created_at, moment: The identity of the created event, which `created_event()` builds anew each
            time.
        sequence: The number of the last stored event.
        ttl_when_deleted: In seconds; None for the `ttl` of the class.
        unknown, beside_data: Members of its document, in `data` and next to it, that no class has.
    """

    raised: list[Raised] = field(default_factory=list)
    event_id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=now)
    moment: int = field(default_factory=next_moment)
    sequence: int = 0
    is_new: bool = True
    etag: str | None = None
    deleted: bool = False
    ttl_when_deleted: int | None = None
    unknown: Unknown = field(default_factory=Unknown)
    beside_data: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class DomainEntity(ABC):
    """Base class of entities. Derive a dataclass, or a plain class that calls `super().__init__()`.

    Attributes:
        id: The document's id; by default a random UUID.
        partition_key: The partition key; None means the id. Entities in one commit share a partition key.
        document_type: The `type` of the documents; by default the class name with a lowercase first letter.
        ttl: Seconds after its last change when Cosmos DB removes a document of this class; -1 for never.

    An entity belongs to one task at a time.
    """

    document_type: ClassVar[str] = "domainEntity"
    ttl: ClassVar[int] = NO_EXPIRY

    id: str = field(default_factory=new_id)
    partition_key: str | None = None
    _outbox: State = field(default_factory=State, init=False, repr=False, compare=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _OWN_NAMES:
            if name in cls.__dict__:
                raise TypeError(f"{cls.__name__}.{name} overrides DomainEntity.{name}: rename it.")
        if "document_type" not in cls.__dict__:
            cls.document_type = lower_first(cls.__name__)

    def __attrs_pre_init__(self) -> None:
        raise TypeError(
            f"{type(self).__name__} is an attrs class: derive it from outbox_relay.outbox.attrs.DomainEntity."
        )

    @abstractmethod
    def created_event(self) -> DomainEvent:
        """Return the created event, built from the current state. Called more than once before the commit."""

    def deleted_event(self) -> DomainEvent:
        """Return the deleted event."""
        raise TypeError(f"{type(self).__name__} cannot be deleted: it defines no deleted_event().")

    def to_data(self) -> dict[str, Any]:
        """Return the JSON values to store as `data`.

        They are the fields, the stored members that the class does not have, `id` and `deleted`. The last two are
        set at the commit in any case, so an override need not return them.

        Raises:
            TypeError: The class does not override this, and is not a dataclass or has a field that cannot be
                stored and read again.
        """
        return {**stored_entity(self), "id": self.id, "deleted": self.deleted}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the entity that `to_data` stored. Missing fields take their default.

        Raises:
            TypeError: As `to_data`, or `data` lacks a member for which there is no default.
        """
        return restored_entity(cls, data)

    def add_event(self, event: DomainEvent) -> None:
        """Append an event, to be stored with the entity.

        If its class sets `replaces_earlier`, the event replaces an earlier one with the same action, and a new
        entity omits it, because its created event has the state.

        Raises:
            NotFound: The entity is deleted and takes no more events.
        """
        if self._outbox.deleted:
            raise NotFound(f"{name_of(self)} is deleted and cannot have the event {event.action}.")
        if event.replaces_earlier:
            if self._outbox.is_new:
                return
            for index, earlier in enumerate(self._outbox.raised):
                if earlier.event.action == event.action:
                    self._outbox.raised[index] = replace(earlier, event=event)
                    return
        self._outbox.raised.append(Raised(event, next_moment()))

    def delete(self, *, ttl: int | None = None) -> None:
        """Mark the entity as deleted and raise its deleted event. Does nothing if it is already deleted.

        Args:
            ttl: Seconds after which Cosmos DB removes the document; None keeps the `ttl` of the class.

        Raises:
            ValueError: The entity is new, or `ttl` is neither -1 nor a positive 32-bit integer.
        """
        check_ttl(ttl)
        if self._outbox.is_new:
            raise ValueError(f"{name_of(self)} is new and cannot be deleted.")
        if not self._outbox.deleted:
            self.add_event(self.deleted_event())
            self._outbox.deleted = True
            self._outbox.ttl_when_deleted = ttl

    @property
    def domain_events(self) -> tuple[DomainEvent, ...]:
        """The events raised since the entity was read or last saved, in order.

        A new entity starts with its created event.
        """
        return tuple(raised.event for raised in raised_by(self))

    @property
    def etag(self) -> str | None:
        """The ETag of the version last read or saved, in quotes; None for a new or deleted entity."""
        return self._outbox.etag

    @property
    def is_new(self) -> bool:
        """True if the entity has never been saved."""
        return self._outbox.is_new

    @property
    def deleted(self) -> bool:
        """True if the entity is deleted: it can have no more events."""
        return self._outbox.deleted


E = TypeVar("E", bound=DomainEntity)


def name_of(entity: DomainEntity) -> str:
    """Return the name used in messages: `order '4711'`."""
    return f"{entity.document_type} '{entity.id}'"


def raised_by(entity: DomainEntity) -> tuple[Raised, ...]:
    """Return the entity's events in order. A created event counts as raised when the entity was constructed."""
    if not entity._outbox.is_new:
        return tuple(entity._outbox.raised)
    created = copy.copy(entity.created_event())
    # It is one event, however often it is built: it keeps its id and time.
    object.__setattr__(created, "id", entity._outbox.event_id)
    object.__setattr__(created, "created_at", entity._outbox.created_at)
    return (Raised(created, entity._outbox.moment), *entity._outbox.raised)


def partition_key_of(entity: DomainEntity) -> str:
    """Return the partition key of the entity's documents."""
    return entity.id if entity.partition_key is None else entity.partition_key


def ttl_of(entity: DomainEntity) -> int:
    """Return the `ttl` of the entity's document, in seconds."""
    return entity.ttl if entity._outbox.ttl_when_deleted is None else entity._outbox.ttl_when_deleted


def sequence_of(entity: DomainEntity) -> int:
    """Return the number of the entity's last stored event; 0 if it has none."""
    return entity._outbox.sequence


def check_class(kind: type[DomainEntity]) -> None:
    """Check that entities of a class can be stored and read again.

    Raises:
        TypeError: It leaves that to its fields, and they do not say how.
    """
    mapped = {name for each in kind.__mro__[: kind.__mro__.index(DomainEntity)] for name in vars(each)}
    if mapped.isdisjoint(("to_data", "from_data")):
        check_entity_class(kind)


def check_ttl(ttl: int | None) -> None:
    """Raise ValueError if `ttl` is not a valid time to live.

    See https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live.
    """
    if ttl is not None and ttl != NO_EXPIRY and not 0 < ttl <= MAX_TTL_S:
        raise ValueError(f"A time to live must be -1 or 1 to {MAX_TTL_S} seconds, not {ttl}.")
