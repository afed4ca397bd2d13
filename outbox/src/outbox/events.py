"""The domain event: something that happened to an entity, told once and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import uuid4

from outbox.payload import camel_case, rendered


def new_id() -> str:
    """A random UUID: unique across all partitions, as duplicate detection on a topic may compare ids alone."""
    return str(uuid4())


def now() -> str:
    """This moment by RFC 3339, with its offset: `2026-02-09T11:37:37.302290+00:00`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, kw_only=True)
class DomainEvent:
    """To be derived from by a frozen dataclass whose fields are what the event tells.

    Attributes:
        id: The event document's id, and the id of the message it becomes.
        created_at: When it happened; RFC 3339 with an offset.
        action: What happened, and the subject of the message; the class's name unless a class sets its own.
    """

    action: ClassVar[str] = "DomainEvent"

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
