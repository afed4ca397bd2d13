"""Base classes of entities and events that are attrs classes. Everything else is as in `outbox`.

Import them by `from outbox_relay.outbox.attrs import DomainEntity, DomainEvent`.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import define, field, frozen

from outbox_relay.outbox import entities, events


@define(kw_only=True, eq=False, slots=False)
class DomainEntity(entities.DomainEntity):
    """Base class of entities. Derive a class with `@attrs.define`."""

    __attrs_pre_init__: ClassVar[None] = None  # type: ignore[assignment]

    id: str = field(factory=events.new_id)
    partition_key: str | None = None
    _outbox: entities.State = field(factory=entities.State, init=False, repr=False, eq=False)


@frozen(kw_only=True)
class DomainEvent(events.DomainEvent):
    """Base class of events. Derive a class with `@attrs.frozen`."""

    id: str = field(factory=events.new_id)
    created_at: str = field(factory=events.now)
