"""Parses a contact event into the change that the directory applies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

_ASPECTS = {
    "ContactCreatedEvent": ("name", "description", "email", "company"),
    "ContactNameUpdatedEvent": ("name",),
    "ContactDescriptionUpdatedEvent": ("description",),
    "ContactEmailUpdatedEvent": ("email",),
    "ContactCompanyUpdatedEvent": ("company",),
    "ContactDeletedEvent": (),
}


class UnreadableEvent(Exception):
    """A message is not a valid contact event and never will be. The error says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a contact.

    Attributes:
        contact_id: The contact's id.
        version: The contact's version after the change, from 1.
        aspects: The new JSON values, by name.
        deleted: Whether the contact was deleted.
    """

    contact_id: str
    version: int
    aspects: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deleted: bool = False


def sequence_of(properties: Mapping[Any, Any] | None) -> int | None:
    """Return the event's number within its contact from the application properties, or None.

    Property names are bytes in the SDK and strings in the Functions host.
    """
    if properties is None:
        return None
    sequence = properties.get(b"sequence", properties.get("sequence"))
    return sequence if isinstance(sequence, int) else None


def parse_event(body: bytes) -> dict[str, Any]:
    """Return the event in the body of a message.

    Raises:
        UnreadableEvent: The body is not an event.
    """
    try:
        data = json.loads(body)
    except ValueError as error:
        raise UnreadableEvent(f"The body is not JSON: {error}.") from error
    if not _is_object(data) or not isinstance(data.get("action"), str):
        raise UnreadableEvent("The body is not an event: it has no action.")
    return data


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True for a JSON object."""
    return isinstance(value, dict)


def parse_change(data: Mapping[str, Any]) -> Change | None:
    """Return the change in an event; None for other kinds of event, which the directory ignores.

    Raises:
        UnreadableEvent: A contact event lacks a field, or one has the wrong type.
    """
    action = data["action"]
    if action not in _ASPECTS:
        return None
    if missing := [name for name in ("contactId", "version", *_ASPECTS[action]) if name not in data]:
        raise UnreadableEvent(f"The {action} has no {missing[0]}.")
    contact_id, version = data["contactId"], data["version"]
    if not isinstance(contact_id, str) or not isinstance(version, int):
        raise UnreadableEvent(f"The {action} has an invalid contactId or version: {contact_id!r}, {version!r}.")
    return Change(
        contact_id, version, {name: data[name] for name in _ASPECTS[action]}, action == "ContactDeletedEvent"
    )
