"""The domain event: something that happened to an entity. Immutable, and published once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar
from uuid import uuid4

from outbox_relay.outbox.fields import fields_of
from outbox_relay.outbox.mapping import members_of

# Global to the process, because the entities of one commit share no other state. A clock would not order events:
# it may not advance between two of them, or be set back.
_moments = count()
_OWN_FIELDS = frozenset({"id", "created_at"})


def new_id() -> str:
    """Return a random UUID, unique across partitions: duplicate detection may compare message ids alone."""
    return str(uuid4())


def now() -> str:
    """Return the current time in RFC 3339 format: `2026-02-09T11:37:37.302290+00:00`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def next_moment() -> int:
    """Return a number greater than all earlier ones in this process."""
    return next(_moments)


@dataclass(frozen=True, kw_only=True)
class DomainEvent:
    """Base class of events. Derive a frozen dataclass whose fields are the event's payload.

    Attributes:
        id: The id of the event document and of its message.
        created_at: When the event was raised; RFC 3339 with an offset.
        action: What happened, and the subject of the message; by default the class name.
        replaces_earlier: Whether an event of this class replaces an earlier one of its entity with the same action
            in the same commit. For events that carry the whole new value. A new entity omits such events, because
            its created event has the state. By default every event is kept.
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
        """Return the payload without id, action, time and entity: each field under its name in camelCase.

        Raises:
            TypeError: Two fields have one name in camelCase.
        """
        fields_of(type(self))  # including those under whose names the library adds members
        return members_of(self, _OWN_FIELDS)


@dataclass(frozen=True, slots=True)
class Raised:
    """An event and when it was raised, by `next_moment()`."""

    event: DomainEvent
    moment: int
