"""The domain: the contact, its value objects and its events. No I/O."""

from __future__ import annotations

from samples.contacts.domain.contact import Contact
from samples.contacts.domain.values import Company, InvalidContact, Name

__all__ = ["Company", "Contact", "InvalidContact", "Name"]
