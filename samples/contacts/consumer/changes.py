"""What an event tells, as the directory takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TOLD = {
    "ContactCreatedEvent": ("name", "description", "email", "company"),
    "ContactNameUpdatedEvent": ("name",),
    "ContactDescriptionUpdatedEvent": ("description",),
    "ContactEmailUpdatedEvent": ("email",),
    "ContactCompanyUpdatedEvent": ("company",),
    "ContactDeletedEvent": (),
}


class UnreadableEvent(Exception):
    """A message is not what a contact's event looks like, and never will be; the message says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a contact.

    Attributes:
        contact_id: Whose it is.
        version: The contact's version since then, counted from 1.
        aspects: The new values, by name: JSON values.
        deleted: Whether it is the contact's end.
    """

    contact_id: str
    version: int
    aspects: Mapping[str, Any] = field(default_factory=dict)
    deleted: bool = False


def sequence_of(properties: Mapping[Any, Any] | None) -> int | None:
    """The event's number among those of its contact, an application property; None where it has none.

    The SDK gives the names of properties as bytes, the Functions host as text.
    """
    if properties is None:
        return None
    sequence = properties.get(b"sequence", properties.get("sequence"))
    return sequence if isinstance(sequence, int) else None


def event_of(body: bytes) -> dict[str, Any]:
    """The event in the body of a message.

    Raises:
        UnreadableEvent: It is none.
    """
    try:
        data = json.loads(body)
    except ValueError as error:
        raise UnreadableEvent(f"The body is not JSON: {error}.") from error
    if not isinstance(data, dict) or not isinstance(data.get("action"), str):
        raise UnreadableEvent("The body is no event: it has no action.")
    return data


def change_of(data: Mapping[str, Any]) -> Change | None:
    """What an event tells; None for one of another kind, which is not for the directory.

    Raises:
        UnreadableEvent: It is one of a contact that lacks something.
    """
    action = data["action"]
    if action not in _TOLD:
        return None
    if missing := [name for name in ("contactId", "version", *_TOLD[action]) if name not in data]:
        raise UnreadableEvent(f"The {action} has no {missing[0]}.")
    contact_id, version = data["contactId"], data["version"]
    if not isinstance(contact_id, str) or not isinstance(version, int):
        raise UnreadableEvent(f"The {action} has no sound contactId and version: {contact_id!r}, {version!r}.")
    return Change(
        contact_id, version, {name: data[name] for name in _TOLD[action]}, action == "ContactDeletedEvent"
    )
