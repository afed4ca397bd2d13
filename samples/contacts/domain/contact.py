"""The contact. Its state is private, and each method that changes it raises an event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4

from outbox_relay.outbox import DomainEntity
from samples.contacts.domain.events import (
    ContactCompanyUpdatedEvent,
    ContactCreatedEvent,
    ContactDeletedEvent,
    ContactDescriptionUpdatedEvent,
    ContactEmailUpdatedEvent,
    ContactNameUpdatedEvent,
)
from samples.contacts.domain.values import Company, Name, checked_description, checked_email


class Contact(DomainEntity):
    """A person at a company. Setting a value that is already set changes nothing and raises no event.

    Args:
        id: Chosen by the caller; None generates a random UUID.

    Raises:
        InvalidContact: `email` or `description` is invalid. The setters raise it too.
    """

    def __init__(
        self, name: Name, email: str, company: Company, description: str = "", *, id: str | None = None
    ) -> None:
        super().__init__(id=str(uuid4()) if id is None else id)
        self._name = name
        self._email = checked_email(email)
        self._company = company
        self._description = checked_description(description)
        self._created_at = _now()
        self._modified_at: str | None = None
        self._version = 1
        self._advanced_from: str | None = None

    @property
    def name(self) -> Name:
        return self._name

    @property
    def email(self) -> str:
        return self._email

    @property
    def company(self) -> Company:
        return self._company

    @property
    def description(self) -> str:
        return self._description

    @property
    def created_at(self) -> str:
        """RFC 3339, UTC."""
        return self._created_at

    @property
    def modified_at(self) -> str | None:
        """RFC 3339, UTC; None if the contact was never changed."""
        return self._modified_at

    @property
    def version(self) -> int:
        """The number of the commit that stored this state, or will store it, from 1."""
        return self._version

    def set_name(self, name: Name) -> None:
        if name != self._name:
            self._name = name
            self.add_event(ContactNameUpdatedEvent(self._next_version(), name))

    def set_email(self, email: str) -> None:
        if checked_email(email) != self._email:
            self._email = email
            self.add_event(ContactEmailUpdatedEvent(self._next_version(), email))

    def set_company(self, company: Company) -> None:
        if company != self._company:
            self._company = company
            self.add_event(ContactCompanyUpdatedEvent(self._next_version(), company))

    def set_description(self, description: str) -> None:
        if checked_description(description) != self._description:
            self._description = description
            self.add_event(ContactDescriptionUpdatedEvent(self._next_version(), description))

    def _next_version(self) -> int:
        """Return the version that the next commit stores. All changes of one commit share it."""
        if not self.is_new:
            self._modified_at = _now()
            if self.etag != self._advanced_from:
                self._advanced_from = self.etag
                self._version += 1
        return self._version

    def created_event(self) -> ContactCreatedEvent:
        return ContactCreatedEvent(self._version, self._name, self._description, self._email, self._company)

    def deleted_event(self) -> ContactDeletedEvent:
        return ContactDeletedEvent(self._next_version())

    def to_data(self) -> dict[str, Any]:
        return {
            "name": self._name.to_data(),
            "description": self._description,
            "email": self._email,
            "company": self._company.to_data(),
            "createdAt": self._created_at,
            "modifiedAt": self._modified_at,
            "version": self._version,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        contact = cls(
            Name.from_data(data["name"]), data["email"], Company.from_data(data["company"]), data["description"]
        )
        contact._created_at = data["createdAt"]
        contact._modified_at = data["modifiedAt"]
        contact._version = data["version"]
        return contact


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
