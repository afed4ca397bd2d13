"""The events of a contact, with the article's names."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_relay.outbox import DomainEvent
from samples.contacts.domain.values import Company, Name


@dataclass(frozen=True)
class ContactEvent(DomainEvent):
    """Base class of the events.

    Attributes:
        version: The number of the contact's commit, from 1; the same for all events of one commit. It lets a
            consumer recognise repeated and outdated events.
    """

    version: int


@dataclass(frozen=True)
class ContactUpdatedEvent(ContactEvent):
    """Base class of updates. Each carries the whole new value, so it replaces an earlier one of the commit."""

    replaces_earlier = True


@dataclass(frozen=True)
class ContactCreatedEvent(ContactEvent):
    name: Name
    description: str
    email: str
    company: Company


@dataclass(frozen=True)
class ContactNameUpdatedEvent(ContactUpdatedEvent):
    name: Name


@dataclass(frozen=True)
class ContactEmailUpdatedEvent(ContactUpdatedEvent):
    email: str


@dataclass(frozen=True)
class ContactCompanyUpdatedEvent(ContactUpdatedEvent):
    company: Company


@dataclass(frozen=True)
class ContactDescriptionUpdatedEvent(ContactUpdatedEvent):
    description: str


@dataclass(frozen=True)
class ContactDeletedEvent(ContactEvent):
    pass
