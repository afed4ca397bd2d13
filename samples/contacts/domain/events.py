"""The events of a contact, with the article's names.

`version` counts the commits of a contact, from 1. All events of one commit have the same version. It lets a
consumer recognise repeated and outdated events.

An update carries the whole new value, so it replaces earlier ones in the same commit, as in the article.
"""

from __future__ import annotations

from dataclasses import dataclass

from outbox import DomainEvent
from samples.contacts.domain.values import Company, Name


@dataclass(frozen=True)
class ContactCreatedEvent(DomainEvent):
    version: int
    name: Name
    description: str
    email: str
    company: Company


@dataclass(frozen=True)
class ContactNameUpdatedEvent(DomainEvent):
    replaces_earlier = True

    version: int
    name: Name


@dataclass(frozen=True)
class ContactEmailUpdatedEvent(DomainEvent):
    replaces_earlier = True

    version: int
    email: str


@dataclass(frozen=True)
class ContactCompanyUpdatedEvent(DomainEvent):
    replaces_earlier = True

    version: int
    company: Company


@dataclass(frozen=True)
class ContactDescriptionUpdatedEvent(DomainEvent):
    replaces_earlier = True

    version: int
    description: str


@dataclass(frozen=True)
class ContactDeletedEvent(DomainEvent):
    version: int
