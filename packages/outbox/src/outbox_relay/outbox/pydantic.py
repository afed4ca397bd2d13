"""Base classes of entities and events that are Pydantic models. Everything else is as in `outbox`::

    from outbox_relay.outbox.pydantic import DomainEntity, DomainEvent

Needs the extra `pydantic`. A model is stored as `model_dump(mode="json", by_alias=True)` returns it and read with
`model_validate`, so a field may have any type that Pydantic reads back unchanged: dates, decimals, UUIDs,
enumerations, sets. Fields without an alias are stored in camelCase; a nested model names its own fields.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from outbox_relay.outbox import entities, events
from outbox_relay.outbox.fields import camel_case


class DomainEntity(BaseModel, entities.DomainEntity):
    """Base class of entities. Entities of one class are equal if their fields are."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=camel_case, populate_by_name=True)

    document_type: ClassVar[str] = "domainEntity"
    ttl: ClassVar[int] = entities.NO_EXPIRY

    id: str = Field(default_factory=events.new_id)
    partition_key: str | None = None
    _outbox: entities.State = PrivateAttr(default_factory=entities.State)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and dict(self) == dict(other)


class DomainEvent(BaseModel, events.DomainEvent, frozen=True):
    """Base class of events, which are frozen. Derive with `frozen=True`, for type checkers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=camel_case, populate_by_name=True)

    action: ClassVar[str] = "DomainEvent"
    replaces_earlier: ClassVar[bool] = False

    id: str = Field(default_factory=events.new_id)
    created_at: str = Field(default_factory=events.now)
