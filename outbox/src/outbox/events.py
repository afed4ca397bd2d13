"""The domain event: something that happened to an entity, told once and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar
from uuid import uuid4

from outbox.payload import camel_case, rendered

# Of the process, as the entities that raise the events of one commit share nothing else. A clock would not do: it
# can stand still between two events, or be set back.
_moments = count()


def new_id() -> str:
    """A random UUID: unique across all partitions, as duplicate detection on a topic may compare ids alone."""
    return str(uuid4())


def now() -> str:
    """This moment by RFC 3339, with its offset: `2026-02-09T11:37:37.302290+00:00`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def next_moment() -> int:
    """A number above all that were given before in this process: what happened first has the smaller one."""
    return next(_moments)


@dataclass(frozen=True, kw_only=True)
class DomainEvent:
    """To be derived from by a frozen dataclass whose fields are what the event tells.

    Attributes:
        id: The event document's id, and the id of the message it becomes.
        created_at: When it happened; RFC 3339 with an offset.
        action: What happened, and the subject of the message; the class's name unless a class sets its own.
        replaces_earlier: Whether the last event of a commit with this action is enough, as each tells the whole
            new value. It takes the place of an earlier one of its entity, and a new entity, whose created event
            tells all, leaves it out. False, the default, keeps every event.
    """

    action: ClassVar[str] = "DomainEvent"
    replaces_earlier: ClassVar[bool] = False

    id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=now)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "action" not in cls.__dict__:
            cls.action = cls.__name__

    def to_data(self) -> dict[str, Any]:
        """What the event tells, beside its id, action, time and entity: each field under its name in camelCase."""
        told = (item.name for item in fields(self) if item.name not in ("id", "created_at"))
        return {camel_case(name): rendered(getattr(self, name)) for name in told}


@dataclass(frozen=True, slots=True)
class Raised:
    """An event and the moment it was raised at, by `next_moment()`."""

    event: DomainEvent
    moment: int
